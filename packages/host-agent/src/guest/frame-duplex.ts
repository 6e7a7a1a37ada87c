// A two-way stream with a guest in frames. Checks that the guest begins it once, that its bytes have no gaps, and that
// it keeps to the credit of both directions.
import type { Duplex } from 'node:stream';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { CreditedDuplex, type CreditedLine } from './credited-duplex.ts';
import { OFFSET_BYTES } from './frame-codec.ts';
import { INITIAL_CREDIT } from './frame-stream.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';
import { StreamBeginning } from './stream-beginning.ts';
import { parseStreamEnd } from './stream-end.ts';

/** How many bytes of input the host may send before the guest grants more. */
const INITIAL_INPUT_CREDIT = 256 * 1024;

export class DuplexCall {
  readonly #stream: CreditedDuplex;
  readonly #beginning = new StreamBeginning();
  #offset = 0;

  constructor(line: CreditedLine) {
    this.#stream = new CreditedDuplex(line, INITIAL_CREDIT, INITIAL_INPUT_CREDIT);
  }

  get duplex(): Duplex {
    return this.#stream.duplex;
  }

  get result(): Promise<string> {
    return this.#stream.result;
  }

  /** Handles the frame with which the stream begins. Throws {@link GuestProtocolError} if it came before. */
  begin(status: number): void {
    this.#beginning.begin(status);
  }

  /** Checks that the guest may refuse the stream. Throws {@link GuestProtocolError}. */
  refuse(status: number): void {
    this.#beginning.refuse(status);
  }

  /** Adds bytes that arrived. Throws {@link GuestProtocolError}. */
  push(stream: OutputStream, payload: Buffer): void {
    this.#beginning.expect();
    const offset = payload.readUInt32BE(0) * 2 ** 32 + payload.readUInt32BE(4);
    if (stream !== 'stdout' || offset !== this.#offset)
      throw new GuestProtocolError(`the guest sent ${stream} at byte ${offset} of a stream that is at ${this.#offset}`);
    const bytes = payload.subarray(OFFSET_BYTES);
    this.#offset += bytes.length;
    if (!this.#stream.receive(bytes, payload.length))
      throw new GuestProtocolError('the guest sent bytes of a stream without credit');
  }

  /** Allows the host to send more bytes. Throws {@link GuestProtocolError} when the guest had not got so many. */
  allowInput(bytes: number): void {
    this.#beginning.expect();
    if (!this.#stream.allow(bytes)) throw new GuestProtocolError('the guest granted more input than it has received');
  }

  /** Ends the stream with the guest's result. Throws {@link GuestProtocolError}. */
  end(payload: Buffer): void {
    this.#beginning.expect();
    const end = parseStreamEnd(payload.toString());
    if (end instanceof Error) this.#stream.fail(end);
    else this.#stream.end(end);
  }

  fail(error: Error): void {
    this.#stream.fail(error);
  }

  /** Discards what arrived, and all that still arrives. */
  drop(): void {
    this.#stream.duplex.destroy();
  }
}
