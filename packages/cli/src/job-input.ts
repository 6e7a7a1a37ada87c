// Passes standard input on to a job. If the input ends at once, the request that starts the job contains all of it.
// Other input, for example from a terminal, is sent as it comes.
import { setTimeout as delay } from 'node:timers/promises';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { JobStdin } from '@sandbar/sdk/job-stdin.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';

/** How long the start of a job waits for the end of its input, ms. Most files and pipes end within this time. */
const FIRST_WAIT_MS = 50;
/** How many bytes may be read before the job has accepted them. */
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
    // Do not report an unhandled rejection: the code that waits for the chunk gets the error.
    this.#next.catch(() => {});
  }

  /** Returns the first bytes, at most as many as fit into the start request, and whether they are the whole input. */
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

  /** Writes the input after the first bytes to the job, until the input ends or the command takes no more. */
  async passOn(stdin: JobStdin): Promise<void> {
    try {
      let written = stdin.write(this.#rest);
      for (;;) {
        // If a write fails, stop waiting for the next chunk.
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
