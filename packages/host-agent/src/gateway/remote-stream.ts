// The output of one job as it arrives from the gateway. Buffers at most STREAM_CREDIT bytes. The reader asks for the
// next item when it has stored the previous item, and only then the gateway gets new credit.
import type { JobFrame } from '../guest/guest.ts';
import { GuestProtocolError } from '../guest/guest-protocol-error.ts';
import { parseEndedJob } from './answers.ts';
import type { Output } from './output.ts';
import { OUTPUT_COST, ProtocolViolation, STREAM_CREDIT } from './protocol.ts';

/** Credit is granted in pieces of at least this many bytes, so that small items do not each cost a `credit` frame. */
const CREDIT_PIECE = STREAM_CREDIT / 4;

export type StreamLine = { grant(bytes: number): void; drop(): void };

export class RemoteStream implements AsyncIterable<JobFrame> {
  readonly #line: StreamLine;
  readonly #jobId: string;
  readonly #waiting: JobFrame[] = [];
  #credit = STREAM_CREDIT;
  #owed = 0;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  /** `jobId`: the job whose output this is. `line`: sends frames about this stream to the gateway. */
  constructor(jobId: string, line: StreamLine) {
    this.#jobId = jobId;
    this.#line = line;
  }

  /**
   * Adds output that arrived from the gateway. Throws {@link ProtocolViolation} when the gateway had no credit for it.
   */
  push({ stream, offset, bytes }: Output): void {
    this.#credit -= bytes.length + OUTPUT_COST;
    if (this.#credit < 0) throw new ProtocolViolation('output without credit');
    this.#add({ type: 'output', stream, offset, bytes });
  }

  /** Ends the stream with the job's final status. Throws {@link ProtocolViolation} when `payload` is no status. */
  end(payload: Buffer): void {
    const job = parseEndedJob(payload);
    if (job.id === this.#jobId) this.#add({ type: 'end', job });
    else this.fail(new GuestProtocolError('the guest ended a job with the status of another one'));
  }

  /** Ends the stream with an error. The reader first gets all output that has arrived, then the error. */
  fail(error: Error): void {
    this.#failure ??= error;
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<JobFrame> {
    try {
      for (;;) {
        const frame = this.#waiting.shift() ?? (await this.#next());
        yield frame;
        if (frame.type === 'end') return;
        this.#giveBack(frame.bytes.length);
      }
    } finally {
      this.#line.drop();
    }
  }

  #add(frame: JobFrame): void {
    this.#waiting.push(frame);
    this.#wake?.();
  }

  async #next(): Promise<JobFrame> {
    for (;;) {
      const frame = this.#waiting.shift();
      if (frame) return frame;
      if (this.#failure) throw this.#failure;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }

  #giveBack(bytes: number): void {
    this.#owed += bytes + OUTPUT_COST;
    if (this.#owed < CREDIT_PIECE) return;
    this.#credit += this.#owed;
    this.#line.grant(this.#owed);
    this.#owed = 0;
  }
}
