// Splits a TCP stream into DNS messages, each of which is preceded by its length (RFC 1035, 4.2.2).

const LENGTH_BYTES = 2;

export class FrameReader {
  readonly #maxBytes: number;
  #rest: Buffer = Buffer.alloc(0);

  /** `maxBytes`: the longest message that is accepted. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Takes the next bytes of the stream. Returns the messages that are complete now. Throws when a message is too long.
   */
  push(chunk: Buffer): Buffer[] {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    const messages: Buffer[] = [];
    while (this.#rest.length >= LENGTH_BYTES) {
      const end = LENGTH_BYTES + this.#rest.readUInt16BE(0);
      if (end - LENGTH_BYTES > this.#maxBytes) throw new Error('the message is too long');
      if (this.#rest.length < end) break;
      messages.push(this.#rest.subarray(LENGTH_BYTES, end));
      this.#rest = this.#rest.subarray(end);
    }
    return messages;
  }
}

/** Returns the message with its length before it. */
export function framed(message: Buffer): Buffer {
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}
