// A machine as a sandbox session of the AI SDK. It has commands and files, but no call that stops the machine.
import { posix } from 'node:path';
import {
  extractLines,
  type Experimental_SandboxDirectoryEntry as SandboxDirectoryEntry,
  type Experimental_SandboxFileStat as SandboxFileStat,
  type Experimental_SandboxProcess as SandboxProcess,
  type Experimental_SandboxRunOptions as SandboxRunOptions,
  type Experimental_SandboxSession as SandboxSession,
  type Experimental_SandboxSpawnOptions as SandboxSpawnOptions,
  type Experimental_SandboxSpawnOptionsWithStdin as SandboxSpawnOptionsWithStdin,
  type Experimental_WritableSandboxProcess as WritableSandboxProcess,
} from '@ai-sdk/provider-utils';
import { NotFoundError, type Sandbox } from '@sandbar/sdk';
import { processOf, resultUntilAbort, toReadable } from './process.ts';
import { statTarget } from './stat-target.ts';

type PathOptions = { path: string; abortSignal?: AbortSignal | undefined };

export type SessionOptions = {
  /**
   * An absolute path. A missing directory is created. Commands start there, and relative paths begin there. Default: the
   * working directory of the image, else the home directory.
   */
  workingDirectory?: string | undefined;
  /** How long a command may run, seconds (1 to 86,400). Then it is killed and its exit code is 124. Default: 86,400. */
  commandTimeoutSec?: number | undefined;
};

const COMMAND_TIMEOUT_SEC = 86_400;

export class MachineSession implements SandboxSession {
  readonly #sandbox: Sandbox;
  readonly #timeoutSec: number;
  /** An absolute path. Commands start there, and relative paths begin there. */
  readonly defaultWorkingDirectory: string;

  constructor(sandbox: Sandbox, workingDirectory: string, { commandTimeoutSec }: SessionOptions = {}) {
    this.#sandbox = sandbox;
    this.#timeoutSec = commandTimeoutSec ?? COMMAND_TIMEOUT_SEC;
    this.defaultWorkingDirectory = workingDirectory;
  }

  get description(): string {
    return [
      `Linux virtual machine of Sandbar (id ${this.#sandbox.id}). Commands run with /bin/sh.`,
      `Working directory: ${this.defaultWorkingDirectory}. Files and background processes stay until the machine ends.`,
    ].join('\n');
  }

  /** Runs a command to its end. An abort kills it and throws the reason. */
  async run({ command, abortSignal, ...options }: SandboxRunOptions) {
    abortSignal?.throwIfAborted();
    const execOptions = this.#execOptions(options);
    if (abortSignal === undefined) return resultOf(await this.#sandbox.exec(command, execOptions));
    // Do not pass the signal to the start: to kill the job, its id must be known.
    const job = await this.#sandbox.start(command, execOptions);
    return resultOf(await resultUntilAbort(job, abortSignal));
  }

  spawn(options: SandboxSpawnOptionsWithStdin): Promise<WritableSandboxProcess>;
  spawn(options: SandboxSpawnOptions): Promise<SandboxProcess>;
  /** Starts a command and returns at once. */
  async spawn({ command, abortSignal, stdin = false, ...options }: SandboxSpawnOptions): Promise<SandboxProcess> {
    abortSignal?.throwIfAborted();
    const job = await this.#sandbox.start(command, { ...this.#execOptions(options), stdinOpen: stdin });
    return processOf(job, stdin, abortSignal);
  }

  async readFile({ path, abortSignal }: PathOptions): Promise<ReadableStream<Uint8Array> | null> {
    const stop = new AbortController();
    const signal = abortSignal ? AbortSignal.any([abortSignal, stop.signal]) : stop.signal;
    const chunks = this.#sandbox.files.stream(this.#resolve(path), { signal });
    // Read the first chunk now, because it shows whether the file exists.
    const first = await nullIfMissing(chunks.next());
    if (first === null) return null;
    async function* all() {
      if (first?.done === false) yield first.value;
      yield* chunks;
    }
    return toReadable(all(), (chunk) => chunk, stop);
  }

  readBinaryFile({ path, abortSignal }: PathOptions): Promise<Uint8Array | null> {
    return nullIfMissing(this.#sandbox.files.read(this.#resolve(path), { signal: abortSignal }));
  }

  /** `encoding` must be an encoding of Node's `Buffer`. */
  async readTextFile({
    encoding = 'utf-8',
    startLine,
    endLine,
    ...options
  }: PathOptions & { encoding?: string; startLine?: number; endLine?: number }): Promise<string | null> {
    const bytes = await this.readBinaryFile(options);
    if (bytes === null) return null;
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString(encoding as BufferEncoding);
    return extractLines({
      text,
      ...(startLine === undefined ? {} : { startLine }),
      ...(endLine === undefined ? {} : { endLine }),
    });
  }

  writeFile(options: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void> {
    return this.#write(options);
  }

  writeBinaryFile(options: PathOptions & { content: Uint8Array }): Promise<void> {
    return this.#write(options);
  }

  async writeTextFile({
    content,
    encoding = 'utf-8',
    ...options
  }: PathOptions & { content: string; encoding?: string }) {
    await this.#write({ ...options, content: Buffer.from(content, encoding as BufferEncoding) });
  }

  async stat({ path, abortSignal }: PathOptions): Promise<SandboxFileStat | null> {
    const absolute = this.#resolve(path);
    const entry = await nullIfMissing(this.#sandbox.files.stat(absolute, { signal: abortSignal }));
    if (entry === null) return null;
    const { type, size } = entry;
    if (type !== 'symlink') return { type, size };
    return statTarget(this.#sandbox, absolute, abortSignal);
  }

  async listDirectory({ path, abortSignal }: PathOptions): Promise<SandboxDirectoryEntry[] | null> {
    const entries = await nullIfMissing(this.#sandbox.files.list(this.#resolve(path), { signal: abortSignal }));
    return entries?.map(({ name, type }) => ({ name, type })) ?? null;
  }

  async deleteFile({ path, abortSignal }: PathOptions): Promise<boolean> {
    const { files } = this.#sandbox;
    const absolute = this.#resolve(path);
    const entry = await nullIfMissing(files.stat(absolute, { signal: abortSignal }));
    if (entry === null) return false;
    if (entry.type === 'directory') throw new Error(`${absolute} is a directory`);
    await files.remove(absolute, { signal: abortSignal });
    return true;
  }

  async #write({ path, content, abortSignal }: PathOptions & { content: Uint8Array | ReadableStream<Uint8Array> }) {
    abortSignal?.throwIfAborted();
    await this.#sandbox.files.write(this.#resolve(path), content, { signal: abortSignal });
  }

  #execOptions({ workingDirectory = '.', env }: { workingDirectory?: string; env?: Record<string, string> }) {
    return { cwd: this.#resolve(workingDirectory), env, timeoutSec: this.#timeoutSec };
  }

  #resolve(path: string): string {
    return posix.resolve(this.defaultWorkingDirectory, path);
  }
}

function resultOf({ exitCode, stdout, stderr }: { exitCode: number; stdout: string; stderr: string }) {
  return { exitCode, stdout, stderr };
}

async function nullIfMissing<T>(result: Promise<T>): Promise<T | null> {
  try {
    return await result;
  } catch (error) {
    if (error instanceof NotFoundError) return null;
    throw error;
  }
}
