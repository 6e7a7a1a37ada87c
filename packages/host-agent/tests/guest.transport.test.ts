// Tests the session in frames with a guest that follows the protocol: requests, the output of jobs and the credit for
// it, and calls that end early.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { KIND } from '../src/guest/frame-codec.ts';
import type { JobFrame } from '../src/guest/guest.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';
import { beginOf, endOf, frameOf, outputOf } from './support/frame-guest.ts';
import { FrameSessions, JOB, readAll, SPEC, turns } from './support/frame-sessions.ts';

describe('session in frames', { timeout: 60_000 }, () => {
  const sessions = new FrameSessions();
  const open = sessions.open.bind(sessions);
  before(() => sessions.listen());
  after(() => sessions.close());

  it('a job is read the same however its frames are cut into chunks', async () => {
    const { client, call, guest } = await open(() => {});
    for (let size = 1, number = 0; size < 90; size += 8, number++) {
      const reading = client.startJob('j', SPEC, 100).then(readAll);
      const { id } = await call(number);
      const bytes = Buffer.concat([
        beginOf(id),
        outputOf(id, 0, 'hel'),
        outputOf(id, 0, 'err', KIND.stderr),
        outputOf(id, 3, 'lo'),
        endOf(id, JOB),
      ]);
      for (let at = 0; at < bytes.length; at += size) {
        guest.write(bytes.subarray(at, at + size));
        await turns(2);
      }
      assert.deepEqual(await reading, { out: 'hello', err: 'err', ended: true });
    }
  });

  it('requests have the form that the guest expects, one write each', async () => {
    const { client, host, calls } = await open((call) => {
      if (/^.jobs.[jk]/.test(call.path)) call.send(beginOf(call.id), endOf(call.id, { ...JOB, id: call.path[6] }));
      else if (call.path === '/jobs') call.answer(200, '{"jobs":[]}');
      else call.answer(204);
    });
    const writes: number[] = [];
    const write = host.write.bind(host);
    host.write = ((bytes: Buffer) => {
      writes.push(bytes.length);
      return write(bytes);
    }) as typeof host.write;
    await readAll(await client.startJob('j', { ...SPEC, stdin: 'é' }, 100));
    await client.followJob('k', { stdout: 7, stderr: 2 ** 40 }).then(readAll);
    await client.listJobs();
    await client.freeze(900);
    assert.deepEqual(
      calls.map(({ id, method, path, body }) => [id, `${method} ${path}`, body]),
      [
        [1, 'PUT /jobs/j', '{"command":"true","timeout_sec":1,"stdin":"é","max_output_bytes":100}'],
        [2, 'GET /jobs/k/stream?stdout=7&stderr=1099511627776', ''],
        [3, 'GET /jobs', ''],
        [4, 'POST /freeze', '{"timeout_ms":900}'],
      ],
    );
    assert.equal(writes.length, calls.length);
  });

  it('many small frames that arrive together are one piece of each stream (RES-6)', async () => {
    const { client, call } = await open(() => {});
    const starting = client.startJob('j', SPEC, 10_000);
    const first = await call(0);
    first.send(beginOf(first.id));
    const reading = (async () => {
      const seen: unknown[] = [];
      for await (const frame of await starting)
        seen.push(frame.type === 'output' ? [frame.stream, frame.offset, frame.bytes.length] : frame.type);
      return seen;
    })();
    await turns();
    const small = Array.from({ length: 500 }, (_, at) => [
      outputOf(first.id, at, 'o'),
      outputOf(first.id, at, 'e', KIND.stderr),
    ]);
    first.send(...small.flat(), endOf(first.id, JOB));
    assert.deepEqual(await reading, [['stdout', 0, 500], ['stderr', 0, 500], 'end']);
  });

  it('a stream that is broken off is no violation, and the session stays open', async () => {
    const { client } = await open((call) => {
      if (call.path === '/jobs') call.answer(200, '{"jobs":[]}');
      else call.send(beginOf(call.id), outputOf(call.id, 0, 'x'), frameOf(KIND.broken, call.id));
    });
    const frames = await client.startJob('j', SPEC, 100);
    const seen: unknown[] = [];
    await assert.rejects(
      async () => {
        for await (const frame of frames) seen.push(frame.type);
      },
      (error: Error) => /broke off/.test(error.message) && !(error instanceof GuestProtocolError),
    );
    assert.deepEqual(seen, ['output']);
    assert.deepEqual(await client.listJobs(), []);
  });

  it('a call that is not answered in time is cancelled, and its late answer is dropped', async () => {
    const { client, call } = await open(() => {}, { timeoutMs: 50 });
    await assert.rejects(client.cancelJob('x'), /did not answer POST \/jobs\/x\/cancel in time/);
    const late = await call(0);
    if (!late.isCancelled) await once(late.changes, 'change');
    await assert.rejects(client.startJob('j', SPEC, 100), /did not answer PUT \/jobs\/j in time/);
    const job = await call(1);
    if (!job.isCancelled) await once(job.changes, 'change');
    late.answer(202);
    job.send(beginOf(job.id), outputOf(job.id, 0, 'x'), frameOf(KIND.broken, job.id));
    const listing = client.listJobs();
    (await call(2)).answer(200, '{"jobs":[]}');
    assert.deepEqual(await listing, []);
    job.send(frameOf(KIND.broken, job.id));
    await client.closed;
  });

  it('a job may be silent for longer than a request may take', async () => {
    const { client, call } = await open(() => {}, { timeoutMs: 50 });
    const starting = client.startJob('j', SPEC, 100);
    const job = await call(0);
    job.send(beginOf(job.id));
    const reading = readAll(await starting);
    await assert.rejects(client.listJobs(), /in time/);
    job.send(outputOf(job.id, 0, 'late'), endOf(job.id, JOB));
    assert.deepEqual(await reading, { out: 'late', err: '', ended: true });
  });

  it('credit is granted for what the reader has taken, in pieces of at least 64 KiB', async () => {
    const { client, call } = await open(() => {});
    const starting = client.startJob('j', SPEC, 2 ** 20);
    const job = await call(0);
    const piece = Buffer.alloc(40_000);
    job.send(beginOf(job.id), outputOf(job.id, 0, piece));
    const frames = (await starting)[Symbol.asyncIterator]();
    await frames.next();
    job.send(outputOf(job.id, 40_000, piece, KIND.stdout));
    await frames.next();
    await turns();
    assert.deepEqual(job.grants, []);
    const third = frames.next();
    if (job.grants.length === 0) await once(job.changes, 'change');
    assert.deepEqual(job.grants, [2 * 40_008]);
    job.send(endOf(job.id, JOB));
    await third;
    assert.equal((await frames.next()).done, true);
    await turns();
    assert.equal(job.isCancelled, false, 'a job that ended is not cancelled');
  });

  it('100 MB of output pass, and a stream whose reader stalls does not stop another (RES-6)', async () => {
    const bytes = Buffer.alloc(20_000_000, 'x');
    const { client } = await open(async (call) => {
      call.send(beginOf(call.id));
      await call.output(0, bytes);
      call.send(endOf(call.id, { ...JOB, id: call.path.slice('/jobs/'.length) }));
    });
    const stalled = (await client.startJob('stalled', SPEC, 2 ** 30))[Symbol.asyncIterator]();
    await stalled.next();
    const read = async (frames: AsyncIterable<JobFrame>) => {
      let count = 0;
      for await (const frame of frames) if (frame.type === 'output') count += frame.bytes.length;
      return count;
    };
    for (let round = 0; round < 2; round++)
      assert.equal(await read(await client.startJob(`j${round}`, SPEC, 2 ** 30)), bytes.length);
    await stalled.return?.();
  });

  it('a request that is too long for the guest is refused, and nothing is sent', async () => {
    const { client, calls } = await open((call) => call.answer(204));
    const long = { ...SPEC, stdin: 'x'.repeat(2 ** 21) };
    await assert.rejects(client.startJob('j', long, 100), { code: 'validation_error' });
    await assert.rejects(client.cancelJob('x'.repeat(600)), { code: 'validation_error' });
    await client.thaw();
    assert.deepEqual([calls.length, calls[0]?.id], [1, 1]);
  });

  it('a session ends when the guest closes its port, and every call with it', async () => {
    const { client, guest, call } = await open(() => {});
    const listing = assert.rejects(client.listJobs(), /broke off/);
    await call(0);
    guest.destroy();
    await Promise.all([client.closed, listing]);
  });
});
