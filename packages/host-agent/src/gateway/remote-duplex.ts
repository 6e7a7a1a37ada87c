// A two-way stream with a guest, as the agent has it: its bytes come from the gateway and go to the gateway.
import { CreditedDuplex, type CreditedLine } from '../guest/credited-duplex.ts';
import type { GuestStream } from '../guest/guest-stream.ts';
import type { Output } from './output.ts';
import { decodeJson, INPUT_CREDIT, OUTPUT_COST, ProtocolViolation, STREAM_CREDIT } from './protocol.ts';

export class RemoteDuplex {
  readonly #stream: CreditedDuplex;

  constructor(line: Omit<CreditedLine, 'onUnread'>) {
    this.#stream = new CreditedDuplex({ ...line, onUnread: () => {} }, STREAM_CREDIT, INPUT_CREDIT);
  }

  /** `head`: what the guest says of the stream, as JSON text. */
  toGuestStream(head: string): GuestStream {
    return { head, duplex: this.#stream.duplex, result: this.#stream.result };
  }

  /** Adds bytes that arrived. Throws {@link ProtocolViolation} when the gateway had no credit for them. */
  push({ bytes }: Output): void {
    if (!this.#stream.receive(bytes, bytes.length + OUTPUT_COST)) throw new ProtocolViolation('output without credit');
  }

  /** Throws {@link ProtocolViolation} when the gateway grants more than it was sent. */
  allowInput(bytes: number): void {
    if (!this.#stream.allow(bytes)) throw new ProtocolViolation('more credit than was used');
  }

  /** Ends the stream well. Throws {@link ProtocolViolation} when `payload` is no JSON text. */
  end(payload: Buffer): void {
    this.#stream.end(parseText(decodeJson(payload)));
  }

  fail(error: Error): void {
    this.#stream.fail(error);
  }
}

/** Returns the text that the gateway passed on from a guest. Throws {@link ProtocolViolation} when it is no string. */
export function parseText(value: unknown): string {
  if (typeof value !== 'string') throw new ProtocolViolation('a value where a text should be');
  return value;
}
