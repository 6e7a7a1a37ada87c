// One periodic task of the reconciler. It runs on a timer and when it is signalled, and never twice at the same time.
// Each task has its own timer, so a host call that hangs in one task does not delay the others. While the database is
// away, the pauses between passes grow, so that all tasks of all replicas together do not delay its return.
import type { App } from '../app.ts';
import { isDatabaseAway } from '../db/failures.ts';

export type Task = {
  /** Requests a pass now. Several requests during a running pass lead to only one more pass. */
  signal(): void;
  /** Waits for a running pass to end, then runs a full pass and waits for its end. */
  runOnce(): Promise<void>;
  /** Stops the timer, so that no further pass begins, and waits for a running pass to end. */
  stop(): Promise<void>;
};

/** The longest pause of a task with a short interval while the database is away, in milliseconds. */
const AWAY_PAUSE_MAX_MS = 5_000;

/**
 * Starts a task; its first pass begins at once. `everyMs`: the interval of the timer in milliseconds. When a pass
 * fails, the error is logged and the next pass tries again. While the database is away, passes that the timer or a
 * signal asks for are left out until the pause is over.
 */
export function startTask(app: App, name: string, everyMs: number, work: () => Promise<void>): Task {
  let isStopped = false;
  let isWanted = false;
  let running: Promise<void> | undefined;
  /** The pause after the last pass if it found the database away, and when that pause ends. */
  let away: { pauseMs: number; until: number } | undefined;

  const pass = async () => {
    try {
      await work();
      if (away) app.log.info({ task: name }, 'the database is back');
      away = undefined;
    } catch (error) {
      if (!isDatabaseAway(error)) {
        away = undefined;
        app.log.error({ err: error, task: name }, 'a task of the reconciler failed');
        return;
      }
      if (!away) app.log.warn({ err: error, task: name }, 'the reconciler waits for the database');
      const pauseMs = Math.min(away ? away.pauseMs * 2 : everyMs, Math.max(everyMs, AWAY_PAUSE_MAX_MS));
      away = { pauseMs, until: performance.now() + pauseMs };
    }
  };
  const isPausing = () => away !== undefined && performance.now() < away.until;
  const run = (): Promise<void> => {
    if (isStopped) return Promise.resolve();
    running ??= pass().finally(() => {
      running = undefined;
      if (!isWanted) return;
      isWanted = false;
      runUnlessPausing();
    });
    return running;
  };
  const runUnlessPausing = () => {
    if (!isPausing()) void run();
  };
  const timer = setInterval(runUnlessPausing, everyMs);
  void run();
  return {
    signal: () => {
      if (running) isWanted = true;
      else runUnlessPausing();
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
