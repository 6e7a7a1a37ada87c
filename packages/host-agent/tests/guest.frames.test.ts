// Tests the parser of a job's frame stream. The guest is untrusted: frames parse the same however they are cut into
// chunks, and values out of bounds are refused.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readFrames } from '../src/guest/frames.ts';
import { parseGuestJob, parseGuestJobs } from '../src/guest/guest-job.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';

const JOB = {
  id: 'j',
  status: 'exited',
  exit_code: 0,
  signal: null,
  stdout_bytes: 5,
  stderr_bytes: 0,
  truncated: false,
};

function frame(type: number, offset: bigint, payload: Buffer, length = payload.length): Buffer {
  const header = Buffer.alloc(16);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(length, 4);
  header.writeBigUInt64BE(offset, 8);
  return Buffer.concat([header, payload]);
}

const stream = Buffer.concat([
  frame(1, 0n, Buffer.from('hel')),
  frame(2, 0n, Buffer.from('err')),
  frame(1, 3n, Buffer.from('lo')),
  frame(3, 0n, Buffer.from(JSON.stringify(JOB))),
]);

async function read(chunks: Buffer[]): Promise<{ stdout: string; stderr: string; ended: boolean }> {
  const seen = { stdout: '', stderr: '', ended: false };
  for await (const one of readFrames(
    (async function* () {
      yield* chunks;
    })(),
    { stdout: 0, stderr: 0 },
  )) {
    if (one.type === 'end') seen.ended = true;
    else {
      assert.equal(one.offset, seen[one.stream].length);
      seen[one.stream] += one.bytes.toString();
    }
  }
  return seen;
}

describe('frames of a job', () => {
  it('are the same however the bytes are split', async () => {
    for (let size = 1; size <= stream.length; size++) {
      const chunks = [];
      for (let at = 0; at < stream.length; at += size) chunks.push(stream.subarray(at, at + size));
      assert.deepEqual(await read(chunks), { stdout: 'hello', stderr: 'err', ended: true });
    }
  });

  it('a stream without an end frame counts as interrupted', async () => {
    for (const length of [0, 10, 17, stream.length - 1]) {
      await assert.rejects(read([stream.subarray(0, length)]), /broke off/);
    }
  });

  it('an unknown type, a huge length and an offset past 2^53 are refused at once', async () => {
    for (const bad of [
      frame(9, 0n, Buffer.alloc(0)),
      frame(1, 0n, Buffer.alloc(0), 2 ** 31),
      frame(3, 0n, Buffer.alloc(0), 2 ** 20),
      frame(1, 2n ** 63n, Buffer.from('x')),
    ]) {
      await assert.rejects(read([bad]), GuestProtocolError);
    }
  });

  it('a frame that is empty, repeats output, leaves a gap or has bits that mean nothing is refused (RES-6)', async () => {
    const hi = frame(1, 0n, Buffer.from('hi'));
    const odd = Buffer.from(hi);
    odd.writeUInt8(1, 3);
    for (const [what, chunks] of Object.entries({
      empty: [frame(1, 0n, Buffer.alloc(0))],
      again: [hi, hi],
      overlapping: [hi, frame(1, 1n, Buffer.from('ii'))],
      'with a gap': [hi, frame(1, 3n, Buffer.from('i'))],
      'not at the beginning': [frame(2, 1n, Buffer.from('i'))],
      odd: [odd],
    }))
      await assert.rejects(read(chunks), GuestProtocolError, what);
  });

  it('output that continues an earlier session begins where that one ended (RES-6)', async () => {
    const from = { stdout: 2 ** 40, stderr: 7 };
    const readFrom = async (offset: bigint) => {
      const chunks = (async function* () {
        yield frame(1, offset, Buffer.from('go on'));
        yield frame(3, 0n, Buffer.from(JSON.stringify(JOB)));
      })();
      const offsets = [];
      for await (const one of readFrames(chunks, from)) offsets.push(one.type === 'output' ? one.offset : one.type);
      return offsets;
    };
    assert.deepEqual(await readFrom(2n ** 40n), [2 ** 40, 'end']);
    await assert.rejects(readFrom(0n), GuestProtocolError);
  });

  it('many small frames that arrive together are one piece of each stream (RES-6)', async () => {
    const small = Array.from({ length: 500 }, (_, at) => [
      frame(1, BigInt(at), Buffer.from('o')),
      frame(2, BigInt(at), Buffer.from('e')),
    ]);
    const chunks = (async function* () {
      yield Buffer.concat([...small.flat(), frame(3, 0n, Buffer.from(JSON.stringify(JOB)))]);
    })();
    const seen = [];
    for await (const one of readFrames(chunks, { stdout: 0, stderr: 0 }))
      seen.push(one.type === 'output' ? [one.stream, one.offset, one.bytes.length] : one.type);
    assert.deepEqual(seen, [['stdout', 0, 500], ['stderr', 0, 500], 'end']);
  });

  it('a malformed end frame is a protocol error, not an interrupted session', async () => {
    for (const text of ['{', '', 'null'])
      await assert.rejects(read([frame(3, 0n, Buffer.from(text))]), GuestProtocolError);
  });

  it('an unknown status is refused', () => {
    for (const change of [
      { status: 'lost' },
      { exit_code: 'zero' },
      { exit_code: 2 ** 40 },
      { signal: 'rm -rf' },
      { stdout_bytes: -1 },
      { stderr_bytes: 2 ** 60 },
      { truncated: 'no' },
      { id: 7 },
      { id: 'a\nb' },
      { id: '../x' },
    ]) {
      assert.throws(() => parseGuestJob({ ...JOB, ...change }), GuestProtocolError);
    }
    assert.throws(() => parseGuestJob(null), GuestProtocolError);
    for (const list of [undefined, {}, { jobs: 7 }, { jobs: Array(257).fill(JOB) }, { jobs: [null] }])
      assert.throws(() => parseGuestJobs(list), GuestProtocolError);
    assert.equal(parseGuestJobs({ jobs: [JOB] }).length, 1);
    assert.equal(parseGuestJob(JOB).status, 'exited');
  });
});
