// The protocol between the host agent (root) and the guest gateway (unprivileged). The gateway holds the sessions with
// the guest agents and parses everything that guests send. The agent sees only the frames below.
//
// Channel: one Unix socket pair, made when the agent starts the gateway. Both sides send frames:
//
//   length u32 | kind u8 | id u48 | payload          big-endian; `length` counts the bytes after itself
//
//   agent to gateway                                 gateway to agent
//   open    id = session  {token}                    ready   id = 0        the gateway takes frames
//   close   id = session                             opened  id = session  the guest has echoed the token
//   call    id = call     {session, method, args}    ended   id = session  {message, isListening}
//   credit  id = call     bytes u32                  result  id = call     the result as JSON, or null
//   drop    id = call     send no more output        failure id = call     {type, code?, message}
//   ping    id = number                              output  id = call     stream u8 | offset u64 | bytes
//   input   id = call     bytes                      end     id = call     the ended job as JSON
//   finish  id = call     no more input follows      allow   id = call     bytes u32
//                                                    pong    id = number   of the ping
//
// Sessions: the agent makes an entry `./<session>` in the gateway's folder that leads to the guest's socket, then sends
// `open`. The answer is `opened`, or `ended` when the session could not be opened. An opened session ends with one
// `ended`, also after `close`. `isListening` is false when nobody listened on the socket yet, so that the agent may try
// again.
//
// Calls: `method` is a function of `Guest`. Each call gets one `result` or `failure`. For a call that returns a stream,
// `result` means that the stream begins: then `output` frames follow, and at last one `end` or one `failure`.
//
// A two-way stream (`openStream`) also has `input` and `finish` frames. Its `result` is the guest's head and its `end`
// the guest's result, both as a JSON string with JSON text.
//
// Back-pressure: the output frames of a call may cost STREAM_CREDIT bytes, and as many more as the agent grants with
// `credit`. A frame costs its bytes and OUTPUT_COST. The agent grants the cost of a frame again when it has stored the
// bytes. So a slow disk slows down the guest, and unstored output does not fill the agent's memory.
//
// The agent may send INPUT_CREDIT bytes of input for a call, and as many more as the gateway grants with `allow`. The
// gateway grants bytes again when the guest has taken them.
//
// Trust: the agent believes no frame. It kills the gateway when a frame is too long, has an unknown kind or an id that
// the agent never gave out, or carries output without credit, and when the gateway does not answer pings. It checks the
// shape of every result (answers.ts), and the spool checks every offset again. The agent ignores frames of calls and
// sessions that are over, because the gateway may have sent them before it got the agent's `close` or `drop`.

/** Kinds of frames: below 64 from the agent, from 64 on from the gateway. */
export const KIND = {
  open: 1,
  close: 2,
  call: 3,
  credit: 4,
  drop: 5,
  ping: 6,
  input: 7,
  finish: 8,
  ready: 64,
  opened: 65,
  ended: 66,
  result: 67,
  failure: 68,
  output: 69,
  end: 70,
  pong: 71,
  allow: 72,
} as const;

export type Frame = { kind: number; id: number; payload: Buffer };

/** Number of the channel's file descriptor in the gateway's process. */
export const CHANNEL_FD = 3;
/**
 * How much output of one stream may be sent but not stored yet, as the sum of the frames' costs. Enough for 390 MB/s
 * (bench/gateway.ts).
 */
export const STREAM_CREDIT = 256 * 1024;
/** How many bytes of input of one stream may be sent that the guest has not taken yet. */
export const INPUT_CREDIT = 256 * 1024;
/** What an output frame costs besides its bytes: about the memory that a queued frame takes in addition. */
export const OUTPUT_COST = 256;
/** Most output bytes in one frame. */
export const MAX_OUTPUT_BYTES = 64 * 1024;
/**
 * Largest payload in bytes. The largest legitimate payloads are a job with 1 MiB of standard input, and a list of jobs,
 * for which a guest may send 1 MiB of JSON.
 */
export const MAX_PAYLOAD_BYTES = 4 * 1024 * 1024;

const LENGTH_BYTES = 4;
const KIND_AND_ID_BYTES = 7;
const HEADER_BYTES = LENGTH_BYTES + KIND_AND_ID_BYTES;

/** The other side has violated this protocol. */
export class ProtocolViolation extends Error {}

/** Encodes a frame. Throws when the payload is too long. */
export function encodeFrame(kind: number, id: number, ...parts: readonly Uint8Array[]): Buffer {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  if (size > MAX_PAYLOAD_BYTES) throw new Error(`a message of ${size} bytes is too long for the guest gateway`);
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header.writeUInt32BE(KIND_AND_ID_BYTES + size, 0);
  header.writeUInt8(kind, LENGTH_BYTES);
  header.writeUIntBE(id, LENGTH_BYTES + 1, 6);
  return size === 0 ? header : Buffer.concat([header, ...parts]);
}

export function encodeJson(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value ?? null));
}

/** Returns the value of a JSON payload. Throws {@link ProtocolViolation}. */
export function decodeJson(payload: Buffer): unknown {
  try {
    return JSON.parse(payload.toString());
  } catch {
    throw new ProtocolViolation('a payload is not JSON');
  }
}

/** Encodes the number of bytes of a `credit` or `allow` frame. */
export function uint32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Splits a byte stream into frames. */
export class FrameReader {
  #pending: Buffer = Buffer.alloc(0);

  /** Returns the frames that are complete with `chunk`. Throws {@link ProtocolViolation} for a length out of bounds. */
  *read(chunk: Buffer): Generator<Frame> {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (this.#pending.length >= LENGTH_BYTES) {
      const length = this.#pending.readUInt32BE(0);
      if (length < KIND_AND_ID_BYTES || length > KIND_AND_ID_BYTES + MAX_PAYLOAD_BYTES)
        throw new ProtocolViolation(`a frame of ${length} bytes`);
      if (this.#pending.length < LENGTH_BYTES + length) return;
      const frame = this.#pending.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
      this.#pending = this.#pending.subarray(LENGTH_BYTES + length);
      yield {
        kind: frame.readUInt8(0),
        id: frame.readUIntBE(1, 6),
        payload: frame.subarray(KIND_AND_ID_BYTES),
      };
    }
  }
}
