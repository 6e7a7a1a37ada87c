// Compares a reader of bytes from guests with a second, simpler reader, on random bytes. However the bytes are cut into
// chunks, both readers must find the same in them, or both must refuse them.
import assert from 'node:assert/strict';
import type { StreamOffsets } from '../../src/guest/guest.ts';
import { Finding, type FuzzOptions, Random, shrink } from './fuzzing.ts';

const OFFSETS = [0, 0, 0, 7, 2 ** 32 - 2, 2 ** 40] as const;

export type Readers<Outcome> = {
  /** Makes up the bytes of a guest whose output begins at these offsets. */
  makeUp(random: Random, from: StreamOffsets): Buffer;
  /** The reader that is tested. Returns what it finds, or throws if it breaks one of its guarantees. */
  read(chunks: readonly Buffer[], from: StreamOffsets): Outcome | Promise<Outcome>;
  /** The second reader. It has all bytes at once. */
  expected(bytes: Buffer, from: StreamOffsets): Outcome;
};

/** Runs until `until` returns true. Throws `Finding`. `accepted` is the number of inputs that were not refused. */
export async function fuzzReader<Outcome>(
  { seed, until }: FuzzOptions,
  readers: Readers<Outcome | 'refused'>,
): Promise<{ cases: number; accepted: number }> {
  const result = { cases: 0, accepted: 0 };
  while (!until()) {
    for (let round = 0; round < 100; round++) {
      const caseNumber = result.cases++;
      const random = new Random(seed, caseNumber);
      const from = { stdout: random.pick(OFFSETS), stderr: random.pick(OFFSETS) };
      const input = readers.makeUp(random, from);
      const cutSeed = random.below(2 ** 31);
      const check = (bytes: Buffer) => difference(readers, bytes, from, cutSeed);
      const what = await check(input);
      if (what !== undefined) {
        const smallest = await shrink(input, 1, async (smaller) => (await check(smaller)) !== undefined);
        throw new Finding((await check(smallest)) ?? what, { seed, caseNumber, input: smallest });
      }
      if (readers.expected(input, from) !== 'refused') result.accepted++;
    }
  }
  return result;
}

/** Returns how the reader differs from the second reader on these bytes, or undefined. */
async function difference<Outcome>(
  { read, expected }: Readers<Outcome>,
  bytes: Buffer,
  from: StreamOffsets,
  cutSeed: number,
): Promise<string | undefined> {
  const outcome = expected(bytes, from);
  const random = new Random(cutSeed, 0);
  try {
    for (const chunks of [[bytes], cut(bytes, random), cut(bytes, random)])
      assert.deepEqual(await read(chunks, from), outcome);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return undefined;
}

/** Makes up the JSON of a job's end. It is often valid. */
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

/** Changes, removes, repeats or adds bytes in some of the inputs. */
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

function cut(stream: Buffer, random: Random): Buffer[] {
  const most = random.pick([1, 3, 17, 100, 5000]);
  const chunks: Buffer[] = [];
  for (let at = 0; at < stream.length; ) {
    const length = 1 + random.below(most);
    chunks.push(stream.subarray(at, at + length));
    at += length;
  }
  return chunks;
}
