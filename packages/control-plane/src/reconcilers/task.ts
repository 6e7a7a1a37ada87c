// One periodic task of the reconciler. It runs on a timer and when it is signalled, and never twice at the same time.
// Each task has its own timer, so a host call that hangs in one task does not delay the others.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/database.ts';

export type Task = {
  /** Requests a pass now. Several requests during a running pass lead to only one more pass. */
  signal(): void;
  /** Waits for a running pass to end, then runs a full pass and waits for its end. */
  runOnce(): Promise<void>;
  /** Stops the timer, so that no further pass begins, and waits for a running pass to end. */
  stop(): Promise<void>;
};

/**
 * Starts a task; its first pass begins at once. `everyMs`: the interval of the timer in milliseconds. When a pass
 * fails, the error is logged and the next pass tries again.
 */
export function startTask(app: App, name: string, everyMs: number, work: () => Promise<void>): Task {
  let isStopped = false;
  let isWanted = false;
  let running: Promise<void> | undefined;

  const pass = async () => {
    try {
      await work();
    } catch (error) {
      if (isDatabaseAway(error)) app.log.warn({ task: name }, 'the reconciler waits for the database');
      else app.log.error({ err: error, task: name }, 'a task of the reconciler failed');
    }
  };
  const run = (): Promise<void> => {
    if (isStopped) return Promise.resolve();
    running ??= pass().finally(() => {
      running = undefined;
      if (!isWanted) return;
      isWanted = false;
      void run();
    });
    return running;
  };
  const timer = setInterval(() => void run(), everyMs);
  void run();
  return {
    signal: () => {
      if (running) isWanted = true;
      else void run();
    },
    runOnce: async () => {
      await running;
      await run();
    },
    stop: async () => {
      isStopped = true;
      clearInterval(timer);
      await running;
    },
  };
}
