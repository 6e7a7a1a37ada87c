// The open stdin of the jobs on a fake host, as a guest keeps it: it takes bytes by offset until its pipe is full.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { until } from './postgres.ts';

type StdinCall = { id: string; offset: number; data: string; close: boolean; wait_ms: number };

export class FakeStdin {
  /** All bytes that the guest has accepted. */
  bytes = Buffer.alloc(0);
  isClosed = false;
  /** How many bytes the pipe takes in all. A test that makes it larger lets the command read. */
  capacity = Number.POSITIVE_INFINITY;
  /** Thrown for new bytes. */
  refusal: ServiceError | undefined;
  readonly calls: StdinCall[] = [];
  /** Calls that are under way, and the most that were at the same time. */
  now = 0;
  most = 0;

  /** The guest call `jobs.stdin` of this job. */
  async take(call: StdinCall): Promise<unknown> {
    this.calls.push(call);
    this.most = Math.max(this.most, ++this.now);
    const data = Buffer.from(call.data, 'base64');
    // As with a real guest, other calls may arrive before this one is answered.
    await new Promise(setImmediate);
    const end = call.offset + data.length;
    try {
      if (call.offset > this.bytes.length) {
        throw new ServiceError(
          'conflict',
          `offset ${call.offset} leaves a gap: the next byte is at ${this.bytes.length}`,
        );
      }
      const accept = () => {
        if (end <= this.bytes.length) return true;
        if (this.refusal) throw this.refusal;
        const room = Math.max(0, this.capacity - this.bytes.length);
        this.bytes = Buffer.concat([this.bytes, data.subarray(this.bytes.length - call.offset).subarray(0, room)]);
        return end <= this.bytes.length;
      };
      if (!accept() && call.wait_ms > 0) {
        const deadline = performance.now() + call.wait_ms;
        await until(() => accept() || performance.now() > deadline, 'the command reads, or the wait is over');
      }
      if (call.close && end <= this.bytes.length) this.isClosed = true;
      return { next_offset: this.bytes.length, closed: this.isClosed };
    } finally {
      this.now--;
    }
  }
}
