// The reconciler's clockwork: a pass on a timer and on a signal, one at a time, without arguments. It is the only
// recovery path: whatever a crash, a lost connection or a failed undo left half done is found and finished by a pass.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/database.ts';
import { finishVolumeDeletes } from '../volumes/destroy.ts';
import { compareWithHosts } from './drift.ts';
import { HOUSEKEEPING_MS, keepHouse } from './housekeeping.ts';
import { settleRunningJobs } from './jobs.ts';
import { finishUnfinished } from './unfinished.ts';

export type Reconciler = {
  /** Asks for a pass now; several requests during a pass make one more. */
  signal(): void;
  /** Runs a full pass and waits for its end. For tests. */
  runOnce(): Promise<void>;
  /** No pass begins after this; waits for the one that runs. */
  stop(): Promise<void>;
};

/** Starts the clockwork; the first pass begins at once. */
export function startReconciler(app: App): Reconciler {
  const { reconcileMs, reconcileJobsMs } = app.config.timing;
  let stopped = false;
  let wanted = false;
  let askForJobs = true;
  let jobsAskedAt = 0;
  let houseKeptAt = Number.NEGATIVE_INFINITY;
  let running: Promise<void> | undefined;

  const pass = async () => {
    const withJobs = askForJobs || performance.now() - jobsAskedAt >= reconcileJobsMs;
    askForJobs = false;
    if (performance.now() - houseKeptAt >= HOUSEKEEPING_MS) {
      await step(app, 'housekeeping', async () => {
        await keepHouse(app);
        houseKeptAt = performance.now();
      });
    }
    await step(app, 'unfinished machines', () => finishUnfinished(app));
    await step(app, 'unfinished deletes of volumes', () => finishVolumeDeletes(app));
    await step(app, 'comparison with the hosts', () => compareWithHosts(app));
    if (!withJobs) return;
    jobsAskedAt = performance.now();
    await step(app, 'running jobs', () => settleRunningJobs(app));
  };
  const run = (): Promise<void> => {
    if (stopped) return Promise.resolve();
    running ??= pass().finally(() => {
      running = undefined;
      if (!wanted) return;
      wanted = false;
      void run();
    });
    return running;
  };
  const signal = () => {
    askForJobs = true;
    if (running) wanted = true;
    else void run();
  };
  const timer = setInterval(() => void run(), reconcileMs);
  signal();
  return {
    signal,
    runOnce: async () => {
      await running;
      askForJobs = true;
      await run();
    },
    stop: async () => {
      stopped = true;
      clearInterval(timer);
      await running;
    },
  };
}

/** A step that fails must not keep the others from their work; it is tried again in the next pass. */
async function step(app: App, name: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (isDatabaseAway(error)) app.log.warn({ step: name }, 'the reconciler waits for the database');
    else app.log.error({ err: error, step: name }, 'a step of the reconciler failed');
  }
}
