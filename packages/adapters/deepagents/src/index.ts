// A machine as the backend of a deep agent: `createDeepAgent({ backend: await SandbarSandbox.create() })`.
import { type ExecOptions, Sandbox, type SandboxOptions, type WithClient } from '@sandbar/sdk';
import { BaseSandbox, type ExecuteResponse, type FileDownloadResponse, type FileUploadResponse } from 'deepagents';
import { attempt } from './file-errors.ts';

export type BackendOptions = {
  /** How long a command may run, seconds (1 to 86,400). Then it is killed and its exit code is 124. Default: 1800. */
  commandTimeoutSec?: number | undefined;
};

export type SandbarSandboxOptions = SandboxOptions &
  BackendOptions & {
    /** Files to write before the first command: text by absolute path. */
    initialFiles?: Record<string, string> | undefined;
  };

/** The service destroys machines after this time, so that a program that is killed leaves no machine behind. */
const DEFAULT_EXPIRY_SEC = 1800;
const COMMAND_TIMEOUT_SEC = 1800;
/** After an abort, the caller gets the reason when the command has ended, but after this time at the latest, ms. */
const CANCEL_TIMEOUT_MS = 5000;
/** How many files of one call are transferred at the same time. */
const PARALLEL_FILES = 4;

/**
 * A machine. If a file cannot be read or written, the call returns an error code for that file. Other failures, such as
 * a service that does not answer or a machine that is gone, throw the errors of `@sandbar/sdk`.
 */
export class SandbarSandbox extends BaseSandbox implements AsyncDisposable {
  readonly id: string;
  /** The machine. Use it for ports, snapshots and the expiry, for which deepagents has no calls. */
  readonly sandbox: Sandbox;
  readonly #timeoutSec: number;
  #isRunning = true;

  /** The backend of a running machine whose handle comes from `@sandbar/sdk`. Sends nothing. */
  constructor(sandbox: Sandbox, { commandTimeoutSec = COMMAND_TIMEOUT_SEC }: BackendOptions = {}) {
    super();
    this.id = sandbox.id;
    this.sandbox = sandbox;
    this.#timeoutSec = commandTimeoutSec;
  }

  /** Creates a machine, which is destroyed by `close` or after `expiresInSec` (default: 1800). */
  static async create(options: SandbarSandboxOptions = {}): Promise<SandbarSandbox> {
    const { initialFiles = {}, expiresInSec = DEFAULT_EXPIRY_SEC, ...machine } = options;
    const sandbox = await Sandbox.create({ ...machine, expiresInSec });
    try {
      for (const [path, text] of Object.entries(initialFiles)) await sandbox.files.write(path, text);
      return new SandbarSandbox(sandbox, options);
    } catch (error) {
      await sandbox.destroy().catch(() => undefined);
      throw error;
    }
  }

  /** The backend of an existing machine. Throws NotFoundError when the machine does not exist. */
  static async connect(id: string, options: WithClient & BackendOptions = {}): Promise<SandbarSandbox> {
    return new SandbarSandbox(await Sandbox.connect(id, options), options);
  }

  /** False after `close`. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  /**
   * Runs a command with `/bin/sh -c`. `output` has stdout and stderr in the order in which they were written. An abort of
   * `signal` kills the command and throws the reason. Only your own code can pass a signal; deepagents does not.
   */
  async execute(
    command: string,
    { timeoutSec = this.#timeoutSec, signal }: Pick<ExecOptions, 'timeoutSec' | 'signal'> = {},
  ): Promise<ExecuteResponse> {
    signal?.throwIfAborted();
    const options = { timeoutSec, mergeOutput: true };
    const { combined, exitCode, truncated } = signal
      ? await this.#runUntilAbort(command, options, signal)
      : await this.sandbox.exec(command, options);
    return { output: combined, exitCode, truncated };
  }

  async uploadFiles(files: [path: string, content: Uint8Array][]): Promise<FileUploadResponse[]> {
    return inParallel(files, async ([path, content]) => {
      const { error } = await attempt(this.sandbox, path, () => this.sandbox.files.write(path, content));
      return { path, error };
    });
  }

  async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    return inParallel(paths, async (path) => {
      const { value, error } = await attempt(this.sandbox, path, () => this.sandbox.files.read(path));
      return { path, content: value, error };
    });
  }

  /** Destroys the machine and its disk. May be called again. */
  async close(): Promise<void> {
    await this.sandbox.destroy();
    this.#isRunning = false;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #runUntilAbort(command: string, options: ExecOptions, signal: AbortSignal) {
    // Do not pass the signal to the start: to kill the job, its id must be known.
    const job = await this.sandbox.start(command, options);
    try {
      return await job.result({ signal });
    } catch (error) {
      if (!signal.aborted) throw error;
      await job.cancel({ timeoutMs: CANCEL_TIMEOUT_MS }).catch(() => undefined);
      throw signal.reason;
    }
  }
}

/** Maps the items, a few at a time, and returns the results in the order of the items. */
async function inParallel<T, R>(items: readonly T[], map: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += PARALLEL_FILES) {
    results.push(...(await Promise.all(items.slice(at, at + PARALLEL_FILES).map(map))));
  }
  return results;
}
