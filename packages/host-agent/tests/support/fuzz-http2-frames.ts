// Fuzzes the parser of the output that older guest agents send over HTTP/2 against a second, simpler reader. However a stream is cut into chunks, both
// must find the same output and the same end in it, or both must refuse it. Streams are made of likely frames, so that
// many are accepted, and then some bytes are changed.
import assert from 'node:assert/strict';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { FrameParser } from '../../src/guest/frames.ts';
import type { GuestJob, StreamOffsets } from '../../src/guest/guest.ts';
import { parseGuestJob } from '../../src/guest/guest-job.ts';
import { GuestProtocolError } from '../../src/guest/guest-protocol-error.ts';
import { Finding, type FuzzOptions, Random, shrink } from './fuzzing.ts';

const HEADER_BYTES = 16;
const MAX_OUTPUT_PAYLOAD = 1024 * 1024;
const MAX_END_PAYLOAD = 4096;
const OFFSETS = [0, 0, 0, 7, 2 ** 32 - 2, 2 ** 40] as const;

/** What a reader finds in a whole stream. Output of a refused stream does not count. */
type Outcome =
  | { kind: 'refused' }
  | { kind: 'unfinished' | 'ended'; stdout: string; stderr: string; job: GuestJob | undefined };

/** Runs until `until` returns true. Throws `Finding`. `accepted` is the number of streams that were not refused. */
export async function fuzzHttp2Frames({ seed, until }: FuzzOptions): Promise<{ cases: number; accepted: number }> {
  const result = { cases: 0, accepted: 0 };
  while (!until()) {
    for (let round = 0; round < 100; round++) {
      const caseNumber = result.cases++;
      const random = new Random(seed, caseNumber);
      const from = { stdout: random.pick(OFFSETS), stderr: random.pick(OFFSETS) };
      const input = madeUpStream(random, from);
      const cutSeed = random.below(2 ** 31);
      const check = (stream: Buffer) => difference(stream, from, cutSeed);
      const what = check(input);
      if (what !== undefined) {
        const smallest = await shrink(input, 1, async (smaller) => check(smaller) !== undefined);
        throw new Finding(check(smallest) ?? what, { seed, caseNumber, input: smallest });
      }
      if (read(input, from).kind !== 'refused') result.accepted++;
    }
  }
  return result;
}

/** Returns how the parser differs from the second reader on this stream, or undefined. */
function difference(stream: Buffer, from: StreamOffsets, cutSeed: number): string | undefined {
  const expected = read(stream, from);
  const random = new Random(cutSeed, 0);
  try {
    for (const chunks of [[stream], cut(stream, random), cut(stream, random)])
      assert.deepEqual(parse(chunks, from), expected);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return undefined;
}

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
    if (error instanceof GuestProtocolError) return { kind: 'refused' };
    throw error;
  }
  const { stdout, stderr } = output;
  return { kind: job ? 'ended' : 'unfinished', stdout: hex(stdout), stderr: hex(stderr), job };
}

/** The second reader: it has the whole stream, and reads one frame after the other. */
function read(stream: Buffer, from: StreamOffsets): Outcome {
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
      if (length > MAX_END_PAYLOAD) return { kind: 'refused' };
      if (payload.length < length) break;
      try {
        job = parseGuestJob(JSON.parse(payload.toString()));
      } catch {
        return { kind: 'refused' };
      }
      continue;
    }
    const name = head === 0x01000000 ? 'stdout' : head === 0x02000000 ? 'stderr' : undefined;
    if (!name || length === 0 || length > MAX_OUTPUT_PAYLOAD || offset !== BigInt(next[name]))
      return { kind: 'refused' };
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

export function madeUpEnd(random: Random): string {
  const odd = () => random.pick([null, -1, 256, 1.5, 2 ** 53, 'x', [], {}, true] as const);
  const job: Record<string, unknown> = {
    id: random.pick(['j', '019a0000-0000-7000-8000-00000000000b', 'a b', '']),
    status: random.pick(['exited', 'canceled', 'timed_out', 'running', 'lost']),
    exit_code: random.chance(0.5) ? random.below(256) : null,
    signal: random.chance(0.3) ? 'SIGTERM' : null,
    stdout_bytes: random.below(100),
    stderr_bytes: random.below(100),
    truncated: random.chance(0.5),
  };
  if (random.chance(0.2)) job[random.pick(Object.keys(job) as [string, ...string[]])] = odd();
  if (random.chance(0.05)) job.padding = 'x'.repeat(random.below(8000));
  return JSON.stringify(job);
}

function frame(type: number, length: number, offset: bigint): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(length, 4);
  header.writeBigUInt64BE(offset, 8);
  return header;
}

/** Changes, removes, repeats or adds bytes in some of the streams. */
export function mutated(stream: Buffer, random: Random): Buffer {
  let result = stream;
  for (let changes = random.chance(0.5) ? 0 : 1 + random.below(3); changes > 0 && result.length > 0; changes--) {
    const at = random.below(result.length);
    const to = Math.min(result.length, at + random.below(40));
    const [before, piece, rest] = [result.subarray(0, at), result.subarray(at, to), result.subarray(to)];
    const changed = Buffer.from(piece);
    if (changed.length > 0) changed[random.below(changed.length)] = random.pick([0, 1, 2, 3, 0x7f, 0x80, 0xff]);
    const middle = random.pick([[changed], [changed], [piece, piece], [], [Buffer.alloc(random.below(20))]]);
    result = Buffer.concat([before, ...middle, rest]);
  }
  return result;
}

export function cut(stream: Buffer, random: Random): Buffer[] {
  const most = random.pick([1, 3, 17, 100, 5000]);
  const chunks: Buffer[] = [];
  for (let at = 0; at < stream.length; ) {
    const length = 1 + random.below(most);
    chunks.push(stream.subarray(at, at + length));
    at += length;
  }
  return chunks;
}

function hex(pieces: readonly Buffer[]): string {
  return Buffer.concat(pieces).toString('hex');
}
