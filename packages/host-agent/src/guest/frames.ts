// Parses the output stream of a job that a guest sends. A frame is a 16-byte header (type, three zero bytes, payload
// length, absolute offset) and the payload. Output bytes are passed on as they arrive, before their frame is complete.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { GuestJob, JobFrame } from './guest.ts';

const HEADER_BYTES = 16;
const TYPE_STDOUT = 1;
const TYPE_STDERR = 2;
const TYPE_END = 3;
/** Limits of the payload in bytes. A guest that follows the protocol sends smaller frames. */
const MAX_OUTPUT_PAYLOAD = 1024 * 1024;
const MAX_END_PAYLOAD = 64 * 1024;

/** The guest has violated the protocol. */
export class GuestProtocolError extends Error {}

/**
 * Reads frames from the chunks of a response body, up to the end frame. Throws {@link GuestProtocolError} for a
 * malformed frame, and `Error` when the body ends without an end frame.
 */
export async function* readFrames(chunks: AsyncIterable<Buffer>): AsyncGenerator<JobFrame> {
  let pending: Buffer = Buffer.alloc(0);
  let payload: { stream: OutputStream; offset: number; left: number } | undefined;
  for await (const chunk of chunks) {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    for (;;) {
      if (payload) {
        if (pending.length === 0) break;
        const bytes = pending.subarray(0, payload.left);
        pending = pending.subarray(bytes.length);
        yield { type: 'output', stream: payload.stream, offset: payload.offset, bytes };
        payload.offset += bytes.length;
        payload.left -= bytes.length;
        if (payload.left === 0) payload = undefined;
        continue;
      }
      if (pending.length < HEADER_BYTES) break;
      const header = readHeader(pending);
      if (header.type !== TYPE_END) {
        pending = pending.subarray(HEADER_BYTES);
        if (header.length > 0) {
          payload = {
            stream: header.type === TYPE_STDOUT ? 'stdout' : 'stderr',
            offset: header.offset,
            left: header.length,
          };
        }
        continue;
      }
      if (pending.length < HEADER_BYTES + header.length) break;
      const end = pending.subarray(HEADER_BYTES, HEADER_BYTES + header.length);
      yield { type: 'end', job: parseGuestJob(parseJson(end.toString())) };
      return;
    }
  }
  throw new Error('the stream of the job broke off');
}

function readHeader(buffer: Buffer): { type: number; length: number; offset: number } {
  const type = buffer.readUInt8(0);
  const length = buffer.readUInt32BE(4);
  const offset = Number(buffer.readBigUInt64BE(8));
  const limit = type === TYPE_END ? MAX_END_PAYLOAD : MAX_OUTPUT_PAYLOAD;
  if (![TYPE_STDOUT, TYPE_STDERR, TYPE_END].includes(type) || length > limit || !Number.isSafeInteger(offset)) {
    throw new GuestProtocolError(`a frame of type ${type} with ${length} bytes at offset ${offset} is not allowed`);
  }
  return { type, length, offset };
}

const GUEST_STATUSES = ['running', 'exited', 'timed_out', 'canceled'] as const;

/** Checks every field of a job status from a guest. Throws {@link GuestProtocolError} when one is not valid. */
export function parseGuestJob(value: unknown): GuestJob {
  const job = Object(value) as Record<string, unknown>;
  const status = GUEST_STATUSES.find((known) => known === job.status);
  const {
    id,
    exit_code: exitCode = null,
    signal = null,
    stdout_bytes: stdoutBytes,
    stderr_bytes: stderrBytes,
    truncated,
  } = job;
  if (
    typeof id !== 'string' ||
    id.length > 64 ||
    status === undefined ||
    !(exitCode === null || isExitCode(exitCode)) ||
    !(signal === null || (typeof signal === 'string' && /^SIG[A-Z0-9+]{1,12}$/.test(signal))) ||
    !isByteCount(stdoutBytes) ||
    !isByteCount(stderrBytes) ||
    typeof truncated !== 'boolean'
  ) {
    throw new GuestProtocolError('the guest described a job in a shape that is not allowed');
  }
  return { id, status, exitCode, signal, stdoutBytes, stderrBytes, truncated };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new GuestProtocolError('the guest described a job in what is not JSON');
  }
}

/** Exit codes that wait(2) can report: 0 to 255. */
function isExitCode(value: unknown): value is number {
  return isByteCount(value) && value <= 255;
}

function isByteCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
