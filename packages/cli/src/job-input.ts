// Passes standard input on to a job. Input that ends at once goes with the request that starts the job. Other input, as
// from a terminal or a program that writes now and then, is sent as it comes.
import { setTimeout as delay } from 'node:timers/promises';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { JobStdin } from '@sandbar/sdk/job-stdin.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';

/** How long the start of a job waits for the end of its input, ms. Most files and pipes end within this time. */
const FIRST_WAIT_MS = 50;
/** How much is read ahead of what the job has accepted, bytes. */
const READ_AHEAD_BYTES = 1024 * 1024;

export class JobInput {
  readonly #source: NodeJS.ReadStream;
  readonly #chunks: AsyncIterator<Buffer>;
  #next: Promise<IteratorResult<Buffer>>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: NodeJS.ReadStream) {
    this.#source = source;
    this.#chunks = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    this.#next = this.#chunks.next();
    // An error is reported where the chunk is waited for.
    this.#next.catch(() => {});
  }

  /** Returns the first bytes, up to what the start of a job may bring, and whether they are all. */
  async first(): Promise<{ bytes: Buffer; isAll: boolean }> {
    if (this.#source.isTTY) return { bytes: this.#rest, isAll: false };
    const over = delay(FIRST_WAIT_MS, undefined, { ref: false });
    let bytes: Buffer = Buffer.alloc(0);
    for (;;) {
      const chunk = await Promise.race([this.#next, over]);
      if (chunk === undefined) return { bytes, isAll: false };
      if (chunk.done) return { bytes, isAll: true };
      this.#advance();
      bytes = Buffer.concat([bytes, chunk.value]);
      if (bytes.length <= EXEC_BOUNDS.stdinBytes) continue;
      this.#rest = bytes.subarray(EXEC_BOUNDS.stdinBytes);
      return { bytes: bytes.subarray(0, EXEC_BOUNDS.stdinBytes), isAll: false };
    }
  }

  /** Writes what follows the first bytes to the job, until the input ends or the command takes no more. */
  async passOn(stdin: JobStdin): Promise<void> {
    try {
      let written = stdin.write(this.#rest);
      for (;;) {
        // A write that fails while the next chunk is awaited must end that wait, too.
        const chunk = await Promise.race([this.#next, written.then(() => this.#next)]);
        if (chunk.done) break;
        this.#advance();
        written = stdin.write(chunk.value);
        if (stdin.pendingBytes >= READ_AHEAD_BYTES) await written;
      }
      await stdin.close();
    } catch (error) {
      // The command has ended or closed its stdin. Nobody reads the rest, as with a pipe to a local command.
      if (!(error instanceof SandbarError && error.code === 'conflict')) throw error;
    }
  }

  /** Stops reading, so that an open terminal or pipe does not keep this process alive. */
  stop(): void {
    this.#source.destroy();
  }

  #advance(): void {
    this.#next = this.#chunks.next();
    this.#next.catch(() => {});
  }
}
