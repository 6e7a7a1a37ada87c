// One task of the reconciler: it runs on a timer and on a signal, one pass at a time, without arguments. Each task has a
// clock of its own, so that a host call that hangs in one of them does not keep the others from their work.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/database.ts';

export type Task = {
  /** Asks for a pass now; several requests during a pass make one more. */
  signal(): void;
  /** Runs a full pass that begins now and waits for its end. */
  runOnce(): Promise<void>;
  /** No pass begins after this; waits for the one that runs. */
  stop(): Promise<void>;
};

/** Starts a task, with its first pass at once. A pass that fails is logged, and the next one tries again. */
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
