// Fuzzes the reader of a session in frames against a second, simpler reader. Sessions are made of likely frames, so
// that many are accepted.
import assert from 'node:assert/strict';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { FrameCalls } from '../../src/guest/frame-calls.ts';
import { FrameReader, KIND } from '../../src/guest/frame-codec.ts';
import { StreamCall } from '../../src/guest/frame-stream.ts';
import type { GuestJob, StreamOffsets } from '../../src/guest/guest.ts';
import { parseGuestJob } from '../../src/guest/guest-job.ts';
import { GuestProtocolError } from '../../src/guest/guest-protocol-error.ts';
import { answerOf, beginOf, frameOf, outputOf } from './frame-guest.ts';
import { fuzzReader, madeUpEnd, mutated } from './fuzz-reader.ts';
import type { FuzzOptions, Random } from './fuzzing.ts';

const HEADER_BYTES = 9;
const CREDIT = 262_144;
const SOURCES = ['stdout', 'stderr'] as const;
/** The calls of each session, with the ids from 1 on. The reader of the dropped stream has gone. */
const CALLS = ['question', 'stream', 'dropped stream', 'question', 'stream'] as const;
const IDS = [1, 2, 2, 2, 3, 4, 5, 5] as const;

/** What a reader finds for one call. */
type CallOutcome = {
  answer?: string;
  hasBegun?: boolean;
  isBroken?: boolean;
  stdout: string;
  stderr: string;
  job?: GuestJob;
};
type Outcome = 'refused' | CallOutcome[];

/** Runs until `until` returns true. Throws `Finding`. `accepted` is the number of sessions that were not refused. */
export const fuzzFrames = (options: FuzzOptions): Promise<{ cases: number; accepted: number }> =>
  fuzzReader<Outcome>(options, { makeUp: madeUpSession, read, expected });

/** Returns what the reader finds. Throws if it breaks one of its guarantees or throws anything but a refusal. */
async function read(chunks: readonly Buffer[], from: StreamOffsets): Promise<Outcome> {
  const [reader, calls] = [new FrameReader(), new FrameCalls()];
  let unread = 0;
  const streams = new Map<CallOutcome, StreamCall>();
  const outcomes = CALLS.map((kind) => {
    const outcome: CallOutcome = { stdout: '', stderr: '' };
    const stream = new StreamCall(from, {
      grant: () => {},
      drop: () => {},
      onUnread: (bytes) => {
        unread += bytes;
      },
    });
    if (kind === 'dropped stream') stream.drop();
    if (kind !== 'question') streams.set(outcome, stream);
    calls.open({
      ...(kind === 'question' ? {} : { stream }),
      onAnswer: ({ status, text }) => {
        outcome.answer = `${status} ${text}`;
      },
      onBegin: () => {
        outcome.hasBegun = true;
      },
      onFailure: () => {
        outcome.isBroken = true;
      },
    });
    return outcome;
  });
  try {
    for (const chunk of chunks) for (const frame of reader.push(chunk)) calls.take(frame);
  } catch (error) {
    if (error instanceof GuestProtocolError) return 'refused';
    throw error;
  }
  for (const [outcome, stream] of streams) await readStream(stream, from, outcome);
  assert.equal(unread, 0, 'nothing counts as unread when all is read');
  return outcomes;
}

/** Adds to `outcome` what the reader of a stream gets. */
async function readStream(stream: StreamCall, from: StreamOffsets, outcome: CallOutcome): Promise<void> {
  const stop = new Error('all that arrived is read');
  stream.fail(stop);
  const next = { ...from };
  try {
    for await (const frame of stream) {
      assert.equal(outcome.job, undefined, 'the end is the last item');
      if (frame.type === 'end') outcome.job = frame.job;
      else {
        assert.ok(frame.bytes.length > 0, 'output has a byte');
        assert.equal(frame.offset, next[frame.stream], 'output neither repeats nor leaves a gap');
        next[frame.stream] += frame.bytes.length;
        outcome[frame.stream] += frame.bytes.toString('hex');
      }
    }
  } catch (error) {
    if (error !== stop) throw error;
  }
}

/** The second reader: it has all bytes, and reads one frame after the other. */
function expected(bytes: Buffer, from: StreamOffsets): Outcome {
  const calls = CALLS.map((kind) => ({
    kind,
    isOpen: true,
    credit: CREDIT,
    next: { ...from } as StreamOffsets,
    outcome: { stdout: '', stderr: '' } as CallOutcome,
  }));
  for (let at = 0; bytes.length - at >= HEADER_BYTES; ) {
    const [length, kind, id] = [bytes.readUInt32BE(at), bytes[at + 4], bytes.readUInt32BE(at + 5)];
    const isOutput = kind === 66 || kind === 67;
    const isAllowed =
      (kind === 64 && length >= 2 && length <= 2 + 2 ** 20) ||
      (kind === 65 && length >= 2 && length <= 2 + 4096) ||
      (isOutput && length > 8 && length <= 8 + 65_536) ||
      (kind === 68 && length > 0 && length <= 4096) ||
      (kind === 69 && length === 0) ||
      (kind === 70 && length === 4);
    if (!isAllowed) return 'refused';
    const payload = bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length);
    if (payload.length < length) break;
    at += HEADER_BYTES + length;
    const call = calls[id - 1];
    // Only a two-way stream has input, and none of these calls is one.
    if (!call?.isOpen || kind === 70) return 'refused';
    const { outcome } = call;
    if (kind === 69) {
      outcome.isBroken = true;
      call.isOpen = false;
    } else if (kind === 64) {
      const [status, text] = [payload.readUInt16BE(0), payload.toString('utf8', 2)];
      if (![200, 201, 202, 204, 400, 404, 409, 500, 502, 507].includes(status) || (status === 204 && length > 2))
        return 'refused';
      if (call.kind !== 'question' && (outcome.hasBegun || status < 300)) return 'refused';
      outcome.answer = `${status} ${text}`;
      call.isOpen = false;
    } else if (call.kind === 'question') return 'refused';
    else if (kind === 65) {
      if (length > 2 || outcome.hasBegun || ![200, 201].includes(payload.readUInt16BE(0))) return 'refused';
      outcome.hasBegun = true;
    } else if (!outcome.hasBegun) return 'refused';
    else if (isOutput) {
      const stream = kind === 66 ? 'stdout' : 'stderr';
      call.credit -= length;
      if (payload.readBigUInt64BE(0) !== BigInt(call.next[stream]) || call.credit < 0) return 'refused';
      call.next[stream] += length - 8;
      if (call.kind === 'stream') outcome[stream] += payload.toString('hex', 8);
    } else {
      try {
        outcome.job = parseGuestJob(JSON.parse(payload.toString()));
      } catch {
        return 'refused';
      }
      call.isOpen = false;
    }
  }
  return calls.map(({ outcome }) => outcome);
}

function madeUpSession(random: Random, from: StreamOffsets): Buffer {
  const next = CALLS.map(() => ({ ...from }) as Record<OutputStream, number>);
  const begun = new Set<number>();
  const parts: Buffer[] = [];
  const isLarge = random.chance(0.005);
  for (let count = random.below(14); count > 0; count--) {
    const id = isLarge ? 2 : random.chance(0.01) ? random.pick([0, 6, 2 ** 32 - 1]) : random.pick(IDS);
    const offsets = next[id - 1];
    const isQuestion = CALLS[id - 1] === 'question';
    if (isQuestion || !offsets || random.chance(0.02)) parts.push(madeUpAnswer(id, isQuestion, random));
    else if (!begun.has(id) && !random.chance(0.02)) {
      if (random.chance(0.2)) parts.push(madeUpAnswer(id, false, random));
      else parts.push(beginOf(id, random.pick([200, 201, 201]), random.chance(0.02) ? '{}' : ''));
      begun.add(id);
    } else if (random.chance(0.01)) {
      parts.push(frameOf(KIND.inputCredit, id, '\0\0\0\x01'));
    } else if (random.chance(0.1)) {
      parts.push(random.chance(0.3) ? frameOf(KIND.broken, id) : frameOf(KIND.end, id, madeUpEnd(random)));
    } else {
      const stream = isLarge ? 'stdout' : random.pick(SOURCES);
      const size = isLarge ? 65_536 - random.below(3) : random.below(random.chance(0.1) ? 3000 : 40);
      const payload = Buffer.alloc(random.chance(0.01) ? 0 : 1 + Math.min(size, 65_535), count);
      const offset = random.chance(0.02) ? random.pick([0, offsets[stream] - 1, offsets[stream] + 1]) : offsets[stream];
      parts.push(outputOf(id, Math.max(0, offset), payload, stream === 'stdout' ? KIND.stdout : KIND.stderr));
      offsets[stream] += payload.length;
    }
  }
  return mutated(Buffer.concat(parts), random);
}

function madeUpAnswer(id: number, isQuestion: boolean, random: Random): Buffer {
  const status = random.pick(isQuestion ? [200, 201, 202, 404, 500] : [400, 404, 409, 500]);
  if (random.chance(0.1)) return answerOf(id, 204, random.chance(0.2) ? '{}' : '');
  const body = random.pick(['', '{}', '{"jobs":[]}', 'x'.repeat(random.below(300))]);
  return answerOf(id, random.chance(0.03) ? random.below(1000) : status, body);
}
