// Supervises one process: starts it, waits until it is ready, restarts it when it dies (after growing pauses), and ends
// it.
//
//   stopped --start()--> starting --ready--> up --exit--> waiting (back-off) --> starting ...
//   stop() from any of these states: ending --exit--> stopped
import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf, Problem } from '../problem.ts';
import { closeLog, lastLines, openLog, rotateAtStart, watchSize } from './log-file.ts';
import { spareProcess } from './oom-score.ts';
import { removePidFile, writePidFile } from './pid-file.ts';

export type Backoff = {
  firstMs: number;
  longestMs: number;
  /** After a run of at least this length, the pause before the next restart is `firstMs` again. */
  resetAfterMs: number;
  /** The first start is given up after this many failures in a row... */
  attempts: number;
  /** ...or when the process is not ready after this time. */
  startWithinMs: number;
};

export const DEFAULT_BACKOFF: Backoff = {
  firstMs: 100,
  longestMs: 5_000,
  resetAfterMs: 30_000,
  attempts: 5,
  startWithinMs: 30_000,
};

export type ProcessDefinition = {
  name: string;
  logFile: string;
  pidFile: string;
  /** Starts the process in a new session. Its output goes to `logDescriptor`. */
  spawn: (logDescriptor: number) => ChildProcess;
  /**
   * Resolves when the process is ready. The signal aborts when the process ends or must end. If this is undefined, the
   * process sends an IPC message when it is ready.
   */
  waitUntilReady?: (signal: AbortSignal, child: ChildProcess) => Promise<void>;
  stopSignal: NodeJS.Signals;
  /** The time from the stop signal to SIGKILL. */
  stopWithinMs: number;
};

export class SupervisedProcess {
  readonly name: string;
  readonly #definition: ProcessDefinition;
  readonly #backoff: Backoff;
  readonly #report: (line: string) => void;
  readonly #isEnding = new AbortController();
  #child: ChildProcess | undefined;
  #loop: Promise<void> | undefined;
  #endWatch: (() => void) | undefined;

  /** `report` gets a line each time the process dies or cannot be started. */
  constructor(definition: ProcessDefinition, report: (line: string) => void, backoff: Backoff = DEFAULT_BACKOFF) {
    this.name = definition.name;
    this.#definition = definition;
    this.#report = report;
    this.#backoff = backoff;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /**
   * Starts the process. Resolves when it is ready for the first time. If it never is, throws Problem with the last
   * lines of its log.
   */
  start(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    rotateAtStart(this.#definition.logFile);
    this.#endWatch = watchSize(this.#definition.logFile);
    this.#loop = this.#keepRunning(resolve).catch(reject);
    return promise;
  }

  /** Ends the process and resolves when it has exited. */
  async stop(): Promise<void> {
    this.#isEnding.abort();
    const child = this.#child;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      child.kill(this.#definition.stopSignal);
      const kill = setTimeout(() => child.kill('SIGKILL'), this.#definition.stopWithinMs);
      await this.#loop;
      clearTimeout(kill);
    }
    await this.#loop;
    this.#endWatch?.();
  }

  async #keepRunning(onFirstReady: () => void): Promise<void> {
    const { firstMs, longestMs, resetAfterMs, attempts, startWithinMs } = this.#backoff;
    const began = performance.now();
    let pause = firstMs;
    let failures = 0;
    let hasBeenReady = false;
    let reason: string | undefined;

    while (!this.#isEnding.signal.aborted) {
      const started = performance.now();
      const ending = await this.#runOnce(
        () => {
          hasBeenReady = true;
          failures = 0;
          onFirstReady();
        },
        hasBeenReady ? undefined : startWithinMs - (started - began),
        (told) => {
          reason = told;
        },
      );
      if (this.#isEnding.signal.aborted) return;

      failures += 1;
      // The process reported what a person must fix, so another start would fail in the same way.
      if (!hasBeenReady && reason !== undefined) throw new Problem(`The ${this.name} cannot start: ${reason}`);
      if (!hasBeenReady && (failures >= attempts || performance.now() - began > startWithinMs)) {
        throw this.#describeFailedStart(ending, failures);
      }
      if (performance.now() - started > resetAfterMs) pause = firstMs;
      this.#report(
        `${this.name} ended (${reason ?? ending}); starting it again in ${pause} ms, its log is ${this.#definition.logFile}`,
      );
      reason = undefined;
      await delay(pause, undefined, { signal: this.#isEnding.signal }).catch(() => {});
      pause = Math.min(pause * 2, longestMs);
    }
  }

  /** Starts the process, waits for its exit, and returns a description of how it ended. */
  async #runOnce(
    onReady: () => void,
    readyWithinMs: number | undefined,
    onFailed: (reason: string) => void,
  ): Promise<string> {
    const { pidFile, waitUntilReady = waitForReadyMessage } = this.#definition;
    let child: ChildProcess;
    try {
      child = this.#spawn();
    } catch (error) {
      return messageOf(error);
    }
    this.#child = child;
    if (child.pid !== undefined) spareProcess(child.pid);
    child.on('message', (message: unknown) => {
      if (isFailure(message)) onFailed(message.reason);
    });
    this.#writePidFile(child);

    const hasEnded = new AbortController();
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(messageOf(error)));
      child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
    });
    const tooSlow = readyWithinMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), readyWithinMs);
    const stopWaiting = AbortSignal.any([hasEnded.signal, this.#isEnding.signal]);
    waitUntilReady(stopWaiting, child).then(
      () => {
        clearTimeout(tooSlow);
        if (!stopWaiting.aborted) onReady();
      },
      (error: unknown) => {
        if (!stopWaiting.aborted) this.#report(`${this.name} is not ready: ${messageOf(error)}`);
      },
    );

    const ending = await ended;
    clearTimeout(tooSlow);
    hasEnded.abort();
    removePidFile(pidFile);
    return ending;
  }

  #spawn(): ChildProcess {
    const descriptor = openLog(this.#definition.logFile);
    try {
      return this.#definition.spawn(descriptor);
    } finally {
      closeLog(descriptor);
    }
  }

  /**
   * Ignores a failed write, for example on a full disk: then only the next supervisor cannot find a leftover process.
   */
  #writePidFile({ pid }: ChildProcess): void {
    try {
      if (pid !== undefined) writePidFile(this.#definition.pidFile, pid);
    } catch (error) {
      this.#report(`no pid file for ${this.name} (${messageOf(error)})`);
    }
  }

  #describeFailedStart(ending: string, failures: number): Problem {
    const times = failures === 1 ? 'did not start' : `did not start in ${failures} attempts`;
    const { logFile } = this.#definition;
    return new Problem(
      `The ${this.name} ${times} (${ending}). The end of its log, ${logFile}:\n${lastLines(logFile, 15)}`,
    );
  }
}

async function waitForReadyMessage(signal: AbortSignal, child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    child.on('message', (message: unknown) => {
      if (typeof message === 'object' && message !== null && 'type' in message && message.type === 'ready') resolve();
    });
  });
}

/** The IPC message of a process that exits because a person must first fix something outside of it. */
function isFailure(message: unknown): message is { type: 'failed'; reason: string } {
  const { type, reason } = Object(message) as { type?: unknown; reason?: unknown };
  return type === 'failed' && typeof reason === 'string';
}
