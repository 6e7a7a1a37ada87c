// Fuzzes the parser of the output that older guest agents send over HTTP/2 against a second, simpler reader. Streams
// are made of likely frames, so that many are accepted.
import assert from 'node:assert/strict';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { FrameParser } from '../../src/guest/frames.ts';
import type { GuestJob, StreamOffsets } from '../../src/guest/guest.ts';
import { parseGuestJob } from '../../src/guest/guest-job.ts';
import { GuestProtocolError } from '../../src/guest/guest-protocol-error.ts';
import { fuzzReader, madeUpEnd, mutated } from './fuzz-reader.ts';
import type { FuzzOptions, Random } from './fuzzing.ts';

const HEADER_BYTES = 16;
const MAX_OUTPUT_PAYLOAD = 1024 * 1024;
const MAX_END_PAYLOAD = 4096;

/** What a reader finds in a whole stream. Output of a refused stream does not count. */
type Outcome = 'refused' | { kind: 'unfinished' | 'ended'; stdout: string; stderr: string; job: GuestJob | undefined };

/** Runs until `until` returns true. Throws `Finding`. `accepted` is the number of streams that were not refused. */
export const fuzzHttp2Frames = (options: FuzzOptions): Promise<{ cases: number; accepted: number }> =>
  fuzzReader<Outcome>(options, { makeUp: madeUpStream, read: parse, expected });

/**
 * Returns what the parser finds. Throws if the parser breaks one of its guarantees or throws anything but a refusal.
 */
function parse(chunks: readonly Buffer[], from: StreamOffsets): Outcome {
  const parser = new FrameParser(from);
  const next = { ...from };
  const output: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  let job: GuestJob | undefined;
  try {
    for (const chunk of chunks) {
      if (job) break;
      for (const frame of parser.push(chunk)) {
        assert.equal(job, undefined, 'the end is the last item');
        if (frame.type === 'end') job = frame.job;
        else {
          assert.ok(frame.bytes.length > 0, 'output has a byte');
          assert.equal(frame.offset, next[frame.stream], 'output neither repeats nor leaves a gap');
          next[frame.stream] += frame.bytes.length;
          output[frame.stream].push(frame.bytes);
        }
      }
    }
  } catch (error) {
    if (error instanceof GuestProtocolError) return 'refused';
    throw error;
  }
  const { stdout, stderr } = output;
  return { kind: job ? 'ended' : 'unfinished', stdout: hex(stdout), stderr: hex(stderr), job };
}

/** The second reader: it has the whole stream, and reads one frame after the other. */
function expected(stream: Buffer, from: StreamOffsets): Outcome {
  const next = { ...from };
  const output: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  let job: GuestJob | undefined;
  for (let at = 0; stream.length - at >= HEADER_BYTES && !job; ) {
    const head = stream.readUInt32BE(at);
    const length = stream.readUInt32BE(at + 4);
    const offset = stream.readBigUInt64BE(at + 8);
    at += HEADER_BYTES;
    const payload = stream.subarray(at, at + length);
    at += length;
    if (head === 0x03000000) {
      if (length > MAX_END_PAYLOAD) return 'refused';
      if (payload.length < length) break;
      try {
        job = parseGuestJob(JSON.parse(payload.toString()));
      } catch {
        return 'refused';
      }
      continue;
    }
    const name = head === 0x01000000 ? 'stdout' : head === 0x02000000 ? 'stderr' : undefined;
    if (!name || length === 0 || length > MAX_OUTPUT_PAYLOAD || offset !== BigInt(next[name])) return 'refused';
    next[name] += payload.length;
    output[name].push(payload);
  }
  const { stdout, stderr } = output;
  return { kind: job ? 'ended' : 'unfinished', stdout: hex(stdout), stderr: hex(stderr), job };
}

function madeUpStream(random: Random, from: StreamOffsets): Buffer {
  const next = { ...from };
  const parts: Buffer[] = [];
  for (let count = random.below(12); count > 0; count--) {
    const stream = random.pick(['stdout', 'stderr'] as const);
    const payload = Buffer.alloc(random.chance(0.03) ? 0 : 1 + random.below(random.chance(0.1) ? 3000 : 40), count);
    const offset = random.chance(0.04) ? random.pick([0, next[stream] - 1, next[stream] + 1]) : next[stream];
    parts.push(frame(stream === 'stdout' ? 1 : 2, payload.length, BigInt(Math.max(0, offset))), payload);
    next[stream] += payload.length;
  }
  if (random.chance(0.7)) {
    const payload = Buffer.from(madeUpEnd(random));
    parts.push(frame(3, payload.length, 0n), payload);
    if (random.chance(0.2)) parts.push(Buffer.alloc(random.below(40), 1));
  }
  return mutated(Buffer.concat(parts), random);
}

function frame(type: number, length: number, offset: bigint): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(length, 4);
  header.writeBigUInt64BE(offset, 8);
  return header;
}

function hex(pieces: readonly Buffer[]): string {
  return Buffer.concat(pieces).toString('hex');
}
