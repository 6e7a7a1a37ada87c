// The frames between the host and a guest agent. Both sides send them after the echo of the session's token
// (channel.ts):
//
//   length u32 | kind u8 | id u32 | payload          big-endian; `length` counts the payload
//
//   host to guest                                    guest to host
//   request  head length u16 | head | body           answer  status u16 | body        ends the call
//   credit   bytes u32                               begin   status u16 | head        a stream begins
//   cancel                                           stdout  offset u64 | bytes
//   input    bytes                                   stderr  offset u64 | bytes
//   input end                                        end     the result, JSON         ends the call
//                                                    broken                           ends the call without an answer
//                                                    input credit  bytes u32
//
// Job output uses stdout and stderr; a two-way stream uses stdout, input and the head of `begin`.
// `id` is the number of a call. The host counts its calls from 1 in each session. `head` is `METHOD path` in ASCII.
// frame-calls.ts checks that the guest may send a frame; this file checks only its kind and its length.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { GrowingBuffer } from './growing-buffer.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';

export const KIND = {
  request: 1,
  credit: 2,
  cancel: 3,
  input: 4,
  inputEnd: 5,
  answer: 64,
  begin: 65,
  stdout: 66,
  stderr: 67,
  end: 68,
  broken: 69,
  inputCredit: 70,
} as const;

export type Frame = { kind: number; id: number; payload: Buffer };

export const HEADER_BYTES = 9;
/** The size of the status in an answer, and of the offset in an output frame. */
export const STATUS_BYTES = 2;
export const OFFSET_BYTES = 8;
const MAX_ADDRESS_BYTES = 512;
const MAX_BODY_BYTES = 2 * 1024 * 1024;
export const MAX_ANSWER_BYTES = 1024 * 1024;
export const MAX_OUTPUT_BYTES = 64 * 1024;
export const MAX_END_BYTES = 4 * 1024;
export const MAX_HEAD_BYTES = 4 * 1024;
export const MAX_INPUT_BYTES = 64 * 1024;
/** The shortest and the longest payload of each kind of frame that a guest may send, in bytes. */
const LENGTHS = new Map<number, readonly [least: number, most: number]>([
  [KIND.answer, [STATUS_BYTES, STATUS_BYTES + MAX_ANSWER_BYTES]],
  [KIND.begin, [STATUS_BYTES, STATUS_BYTES + MAX_HEAD_BYTES]],
  [KIND.stdout, [OFFSET_BYTES + 1, OFFSET_BYTES + MAX_OUTPUT_BYTES]],
  [KIND.stderr, [OFFSET_BYTES + 1, OFFSET_BYTES + MAX_OUTPUT_BYTES]],
  [KIND.end, [1, MAX_END_BYTES]],
  [KIND.broken, [0, 0]],
  [KIND.inputCredit, [4, 4]],
]);

/** The guest sent a frame with a header that is not allowed, for the call `id`. */
export class MalformedFrame extends GuestProtocolError {
  readonly id: number;

  constructor(id: number, message: string) {
    super(message);
    this.id = id;
  }
}

/** Encodes a request. `body` is JSON or empty. Throws `validation_error` when the guest would refuse it as too long. */
export function encodeRequest(id: number, method: string, path: string, body: string): Buffer {
  const headBytes = method.length + 1 + path.length;
  const bodyBytes = Buffer.byteLength(body);
  if (headBytes > MAX_ADDRESS_BYTES || bodyBytes > MAX_BODY_BYTES)
    throw new ServiceError('validation_error', 'the request is too long for the guest agent of the machine');
  const frame = newFrame(KIND.request, id, 2 + headBytes + bodyBytes);
  frame.writeUInt16BE(headBytes, HEADER_BYTES);
  frame.write(`${method} ${path}`, HEADER_BYTES + 2, 'latin1');
  frame.write(body, HEADER_BYTES + 2 + headBytes, 'utf8');
  return frame;
}

/** Encodes the permission to send `bytes` more bytes of output. */
export function encodeCredit(id: number, bytes: number): Buffer {
  const frame = newFrame(KIND.credit, id, 4);
  frame.writeUInt32BE(bytes, HEADER_BYTES);
  return frame;
}

/** Encodes bytes of a two-way stream. */
export function encodeInput(id: number, bytes: Buffer): Buffer {
  const frame = newFrame(KIND.input, id, bytes.length);
  bytes.copy(frame, HEADER_BYTES);
  return frame;
}

/** Encodes that the host sends no more bytes of a two-way stream. */
export function encodeInputEnd(id: number): Buffer {
  return newFrame(KIND.inputEnd, id, 0);
}

export function encodeCancel(id: number): Buffer {
  return newFrame(KIND.cancel, id, 0);
}

function newFrame(kind: number, id: number, length: number): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + length);
  frame.writeUInt32BE(length, 0);
  frame.writeUInt8(kind, 4);
  frame.writeUInt32BE(id, 5);
  return frame;
}

/**
 * Splits the bytes that a guest sends into frames. The work is linear in the bytes that arrive, and the memory depends
 * on them too, never on a length that a guest only claims.
 */
export class FrameReader {
  /** The beginning of a frame whose rest has not arrived. */
  readonly #partial = new GrowingBuffer();

  /**
   * Returns the frames that are complete with `chunk`. A payload may be a part of `chunk`. Throws
   * {@link MalformedFrame} for an unknown kind and for a length that is not allowed, as soon as the header is there.
   * Do not call it again after that.
   */
  *push(chunk: Buffer): Generator<Frame> {
    let at = 0;
    if (this.#partial.length > 0) {
      at += this.#fill(chunk, at, HEADER_BYTES);
      if (this.#partial.length < HEADER_BYTES) return;
      const size = HEADER_BYTES + payloadLength(this.#partial.bytes, 0);
      at += this.#fill(chunk, at, size);
      if (this.#partial.length < size) return;
      yield frameAt(this.#partial.take(), 0, size);
    }
    while (chunk.length - at >= HEADER_BYTES) {
      const size = HEADER_BYTES + payloadLength(chunk, at);
      if (chunk.length - at < size) break;
      yield frameAt(chunk, at, size);
      at += size;
    }
    if (at < chunk.length) this.#partial.append(chunk.subarray(at));
  }

  /** Adds bytes of `chunk` to the incomplete frame until it has `size` bytes. Returns how many it added. */
  #fill(chunk: Buffer, at: number, size: number): number {
    const wanted = Math.min(size - this.#partial.length, chunk.length - at);
    if (wanted <= 0) return 0;
    this.#partial.append(chunk.subarray(at, at + wanted));
    return wanted;
  }
}

/** Reads the length in the header at `at`. Throws {@link MalformedFrame} when the kind may not have this length. */
function payloadLength(bytes: Buffer, at: number): number {
  const length = bytes.readUInt32BE(at);
  const kind = bytes.readUInt8(at + 4);
  const id = bytes.readUInt32BE(at + 5);
  const limits = LENGTHS.get(kind);
  if (!limits) throw new MalformedFrame(id, `the guest sent a frame of the unknown kind ${kind}`);
  const [least, most] = limits;
  if (length < least || length > most)
    throw new MalformedFrame(id, `the guest sent a frame of kind ${kind} with a payload of ${length} bytes`);
  return length;
}

function frameAt(bytes: Buffer, at: number, size: number): Frame {
  return {
    kind: bytes.readUInt8(at + 4),
    id: bytes.readUInt32BE(at + 5),
    payload: bytes.subarray(at + HEADER_BYTES, at + size),
  };
}
