// Output of a job that has arrived but was not read yet. It is kept as few pieces, so that output in tiny frames needs
// no more memory than its bytes, and a reader gets all bytes of a stream that are there in one piece.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { OFFSET_BYTES } from './frame-codec.ts';
import { GrowingBuffer } from './growing-buffer.ts';
import type { JobFrame } from './guest.ts';

/** Shorter pieces are copied, because they may keep a larger buffer in memory. */
const LARGE_PIECE_BYTES = 4096;

type Output = JobFrame & { type: 'output' };
type Run = { offset: number; pieces: Buffer[]; tail: GrowingBuffer; cost: number };

export class UnreadOutput {
  readonly #runs: Record<OutputStream, Run> = { stdout: newRun(), stderr: newRun() };
  /** The streams in the order in which `take` looks at them, so that an endless stream does not hold up the other. */
  #order: readonly OutputStream[] = ['stdout', 'stderr'];

  /** Adds bytes that begin where the last bytes of the same stream ended. */
  add(stream: OutputStream, offset: number, bytes: Buffer): void {
    const run = this.#runs[stream];
    if (run.cost === 0) run.offset = offset;
    run.cost += OFFSET_BYTES + bytes.length;
    const keepsLittleElse = bytes.length >= LARGE_PIECE_BYTES && bytes.length * 2 >= bytes.buffer.byteLength;
    if (keepsLittleElse) {
      if (run.tail.length > 0) run.pieces.push(run.tail.take());
      run.pieces.push(bytes);
    } else run.tail.append(bytes);
  }

  /**
   * Removes and returns all output of one stream in one piece, and how many bytes of credit it cost. Undefined when
   * there is none.
   */
  take(): { output: Output; cost: number } | undefined {
    for (const stream of this.#order) {
      const run = this.#runs[stream];
      if (run.tail.length > 0) run.pieces.push(run.tail.take());
      const [first, ...rest] = run.pieces;
      if (!first) continue;
      const bytes = rest.length === 0 ? first : Buffer.concat([first, ...rest]);
      this.#runs[stream] = newRun();
      this.#order = stream === 'stdout' ? ['stderr', 'stdout'] : ['stdout', 'stderr'];
      return { output: { type: 'output', stream, offset: run.offset, bytes }, cost: run.cost };
    }
    return undefined;
  }

  clear(): void {
    for (const stream of this.#order) this.#runs[stream] = newRun();
  }
}

function newRun(): Run {
  return { offset: 0, pieces: [], tail: new GrowingBuffer(), cost: 0 };
}
