// The output of one job as it arrives in frames. The guest may send INITIAL_CREDIT bytes, and as many more as the
// reader has taken. So a slow reader makes the guest wait, and at most INITIAL_CREDIT bytes of a job fill the host's
// memory.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { OFFSET_BYTES } from './frame-codec.ts';
import type { GuestJob, JobFrame, StreamOffsets } from './guest.ts';
import { parseGuestJob } from './guest-job.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import { StreamBeginning } from './stream-beginning.ts';
import { UnreadOutput } from './unread-output.ts';

/** How many bytes of output, with their offsets, the guest may send before it gets credit. */
export const INITIAL_CREDIT = 256 * 1024;
/** Credit is granted in pieces of at least this many bytes, so that small output does not cost one frame each time. */
const CREDIT_PIECE = 64 * 1024;

export type StreamLine = {
  /** Allows the guest to send `bytes` more bytes. */
  grant(bytes: number): void;
  /** Called when the reader stops reading, also after the end. */
  drop(): void;
  /** Called with how many more bytes are unread now; negative when some were read. */
  onUnread(bytes: number): void;
};

export class StreamCall implements AsyncIterable<JobFrame> {
  readonly #line: StreamLine;
  readonly #next: StreamOffsets;
  readonly #output = new UnreadOutput();
  #credit = INITIAL_CREDIT;
  /** Bytes of the frames in `#output`. */
  #unread = 0;
  /** Bytes that the reader has taken and for which the guest has no credit yet. */
  #owed = 0;
  readonly #beginning = new StreamBeginning();
  #isDropped = false;
  #job: GuestJob | undefined;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  /** `from`: the offsets at which the output was asked to begin. */
  constructor(from: StreamOffsets, line: StreamLine) {
    this.#next = { ...from };
    this.#line = line;
  }

  /** Handles the frame with which the output begins. Throws {@link GuestProtocolError} if it came before. */
  begin(status: number): void {
    this.#beginning.begin(status);
  }

  /** Checks that the guest may refuse to send output. Throws {@link GuestProtocolError}. */
  refuse(status: number): void {
    this.#beginning.refuse(status);
  }

  /** Adds an output frame. Throws {@link GuestProtocolError}. */
  push(stream: OutputStream, payload: Buffer): void {
    this.#beginning.expect();
    const offset = payload.readUInt32BE(0) * 2 ** 32 + payload.readUInt32BE(4);
    if (offset !== this.#next[stream])
      throw new GuestProtocolError(
        `the guest sent output of ${stream} at byte ${offset} instead of ${this.#next[stream]}`,
      );
    this.#credit -= payload.length;
    if (this.#credit < 0) throw new GuestProtocolError(`the guest sent output of ${stream} without credit`);
    this.#next[stream] += payload.length - OFFSET_BYTES;
    if (this.#isDropped) return;
    this.#unread += payload.length;
    this.#line.onUnread(payload.length);
    this.#output.add(stream, offset, payload.subarray(OFFSET_BYTES));
    this.#wake?.();
  }

  /** Ends the stream with the job's final status. Throws {@link GuestProtocolError} when `payload` is no status. */
  end(payload: Buffer): void {
    this.#beginning.expect();
    this.#job = parseEnd(payload.toString());
    this.#wake?.();
  }

  /** Ends the stream with an error. The reader first gets all output that has arrived, then the error. */
  fail(error: Error): void {
    this.#failure ??= error;
    this.#wake?.();
  }

  /** Discards the output, and all that still arrives. */
  drop(): void {
    this.#isDropped = true;
    this.#output.clear();
    this.#line.onUnread(-this.#unread);
    this.#unread = 0;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<JobFrame> {
    try {
      for (;;) {
        const taken = this.#output.take();
        if (taken) {
          yield taken.output;
          this.#giveBack(taken.cost);
        } else if (this.#job) {
          yield { type: 'end', job: this.#job };
          return;
        } else if (this.#failure) throw this.#failure;
        else await this.#arrival();
      }
    } finally {
      this.drop();
      this.#line.drop();
    }
  }

  async #arrival(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = undefined;
  }

  /** Counts the bytes that the reader has taken, and grants credit for them. */
  #giveBack(bytes: number): void {
    this.#unread -= bytes;
    this.#line.onUnread(-bytes);
    this.#owed += bytes;
    if (this.#owed < CREDIT_PIECE) return;
    this.#credit += this.#owed;
    this.#line.grant(this.#owed);
    this.#owed = 0;
  }
}

/** Parses the status of an ended job. Throws {@link GuestProtocolError}. */
function parseEnd(text: string): GuestJob {
  try {
    return parseGuestJob(JSON.parse(text));
  } catch (error) {
    if (error instanceof GuestProtocolError) throw error;
    throw new GuestProtocolError('the guest described a job with a text that is not JSON');
  }
}
