// Tests the parser of a job's frame stream. The guest is untrusted: frames parse the same however they are cut into
// chunks, and values out of bounds are refused.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GuestProtocolError, parseGuestJob, readFrames } from '../src/guest/frames.ts';

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
  frame(1, 3n, Buffer.alloc(0)),
  frame(1, 3n, Buffer.from('lo')),
  frame(3, 0n, Buffer.from(JSON.stringify(JOB))),
]);

async function read(chunks: Buffer[]): Promise<{ stdout: string; stderr: string; ended: boolean }> {
  const seen = { stdout: '', stderr: '', ended: false };
  for await (const one of readFrames(
    (async function* () {
      yield* chunks;
    })(),
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
    ]) {
      assert.throws(() => parseGuestJob({ ...JOB, ...change }), GuestProtocolError);
    }
    assert.throws(() => parseGuestJob(null), GuestProtocolError);
    assert.equal(parseGuestJob(JOB).status, 'exited');
  });
});
