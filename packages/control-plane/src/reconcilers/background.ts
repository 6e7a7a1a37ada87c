// Runs work in the background of a task's passes, so that a pass never waits for a host. Each host has its own queue,
// so a slow host delays only its own work.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/failures.ts';

export type Background = {
  /**
   * Queues `work` for a host, unless work with the same key waits or runs already. An error is logged; the next pass of
   * the caller starts the work again.
   */
  start(hostId: string, key: string, work: () => Promise<unknown>): void;
  /** Waits until everything that was started has ended. When the process stops, work that waits is dropped. */
  settled(): Promise<void>;
};

type Queue = { waiting: (() => Promise<void>)[]; running: Set<Promise<void>> };

/** Makes the queues of a task. `width`: how much work runs at once for each host. `name`: the task, for the log. */
export function createBackground(app: App, name: string, width: number): Background {
  const keys = new Set<string>();
  const queues = new Map<string, Queue>();

  const runNext = ({ waiting, running }: Queue): void => {
    while (running.size < width) {
      const next = waiting.shift();
      if (!next) return;
      const run = next().finally(() => {
        running.delete(run);
        runNext({ waiting, running });
      });
      running.add(run);
    }
  };
  const guarded = (key: string, work: () => Promise<unknown>) => async () => {
    try {
      if (!app.closing.aborted) await work();
    } catch (err) {
      if (isDatabaseAway(err)) app.log.warn({ task: name }, 'the reconciler waits for the database');
      else app.log.error({ err, task: name, key }, 'a task of the reconciler failed');
    } finally {
      keys.delete(key);
    }
  };
  return {
    start: (hostId, key, work) => {
      if (keys.has(key)) return;
      keys.add(key);
      const queue = queues.get(hostId) ?? { waiting: [], running: new Set() };
      queues.set(hostId, queue);
      queue.waiting.push(guarded(key, work));
      runNext(queue);
    },
    settled: async () => {
      for (;;) {
        const running = [...queues.values()].flatMap((queue) => [...queue.running]);
        if (running.length === 0) return;
        await Promise.all(running);
      }
    },
  };
}
