// The payload of an output frame: stream u8 (1 stdout, 2 stderr) | offset u64 | bytes. Job output is the only bulk data
// of the channel, so it is not JSON.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { ProtocolViolation } from './protocol.ts';

export type Output = { stream: OutputStream; offset: number; bytes: Buffer };

const HEADER_BYTES = 9;
const STDOUT = 1;
const STDERR = 2;

/** Returns the head of the payload. The bytes follow it. */
export function outputHead(stream: OutputStream, offset: number): Buffer {
  const head = Buffer.allocUnsafe(HEADER_BYTES);
  head.writeUInt8(stream === 'stdout' ? STDOUT : STDERR, 0);
  head.writeBigUInt64BE(BigInt(offset), 1);
  return head;
}

/**
 * Parses a payload. Throws {@link ProtocolViolation} when it has no output bytes, an unknown stream, or an offset that
 * is too large.
 */
export function parseOutput(payload: Buffer): Output {
  if (payload.length <= HEADER_BYTES) throw new ProtocolViolation('output without bytes');
  const stream = payload.readUInt8(0);
  const offset = Number(payload.readBigUInt64BE(1));
  const bytes = payload.subarray(HEADER_BYTES);
  if ((stream !== STDOUT && stream !== STDERR) || !Number.isSafeInteger(offset + bytes.length))
    throw new ProtocolViolation(`output of stream ${stream} at offset ${offset}`);
  return { stream: stream === STDOUT ? 'stdout' : 'stderr', offset, bytes };
}
