// Tests the session in frames with a guest that breaks the protocol, or sends more than the host wants to read:
// whatever the guest sends or leaves out, every call ends, and the host keeps to its limits.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { KIND } from '../src/guest/frame-codec.ts';
import type { JobFrame } from '../src/guest/guest.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';
import { answerOf, beginOf, endOf, frameOf, outputOf } from './support/frame-guest.ts';
import { FrameSessions, JOB, readAll, SPEC, turns } from './support/frame-sessions.ts';
import { ManualBudget } from './support/manual-budget.ts';

describe('session in frames with a guest that breaks the protocol', { timeout: 60_000 }, () => {
  const sessions = new FrameSessions();
  const open = sessions.open.bind(sessions);
  before(() => sessions.listen());
  after(() => sessions.close());

  const violations: Record<string, [(id: number) => Buffer, RegExp]> = {
    'an unknown kind': [(id) => frameOf(71, id), /unknown kind 71/],
    'a kind that only the host sends': [(id) => frameOf(KIND.request, id), /unknown kind 1/],
    'an answer without a status': [(id) => frameOf(KIND.answer, id, 'x'), /kind 64 with a payload of 1 bytes/],
    'an answer that claims more than 1 MiB': [
      (id) => frameOf(KIND.answer, id, '', 2 ** 20 + 3),
      /kind 64 with a payload of 1048579/,
    ],
    'a length of 4 GiB': [(id) => frameOf(KIND.answer, id, '', 2 ** 32 - 1), /payload of 4294967295/],
    'a beginning with more than a status': [(id) => Buffer.concat([beginOf(id, 201, 'x')]), /a job with a head/],
    'output without a byte': [(id) => Buffer.concat([beginOf(id), outputOf(id, 0, '')]), /kind 66 with a payload of 8/],
    'output over 64 KiB': [
      (id) => Buffer.concat([beginOf(id), frameOf(KIND.stderr, id, '', 8 + 65_537)]),
      /kind 67 with a payload of 65545/,
    ],
    'an end over 4 KiB': [(id) => frameOf(KIND.end, id, '', 4097), /kind 68 with a payload of 4097/],
    'an end without a status': [(id) => Buffer.concat([beginOf(id), frameOf(KIND.end, id)]), /kind 68 with a payload/],
    'a break with a payload': [(id) => frameOf(KIND.broken, id, 'x'), /kind 69 with a payload of 1/],
    'output before the beginning': [(id) => outputOf(id, 0, 'x'), /had not begun/],
    'an end before the beginning': [(id) => endOf(id, JOB), /had not begun/],
    'two beginnings': [(id) => Buffer.concat([beginOf(id), beginOf(id)]), /began a stream twice/],
    'a beginning with a status of its own': [(id) => beginOf(id, 202), /status 202/],
    'an answer with an unknown status': [(id) => answerOf(id, 418), /status 418/],
    'an answer of status 204 with a body': [(id) => answerOf(id, 204, '{}'), /204 with a body/],
    'an answer in place of a stream': [(id) => answerOf(id, 200, '{}'), /answered with 200 and not with a stream/],
    'an answer after the beginning': [(id) => Buffer.concat([beginOf(id), answerOf(id, 409)]), /after it had begun/],
    'output that repeats': [
      (id) => Buffer.concat([beginOf(id), outputOf(id, 0, 'hi'), outputOf(id, 0, 'hi')]),
      /stdout at byte 0 instead of 2/,
    ],
    'output with a gap': [
      (id) => Buffer.concat([beginOf(id), outputOf(id, 1, 'i', KIND.stderr)]),
      /stderr at byte 1 instead of 0/,
    ],
    'an offset past 2^63': [(id) => Buffer.concat([beginOf(id), outputOf(id, 2n ** 64n - 1n, 'x')]), /instead of 0/],
    'an end that is not JSON': [(id) => Buffer.concat([beginOf(id), frameOf(KIND.end, id, '{')]), /not JSON/],
    'an end in another shape': [(id) => Buffer.concat([beginOf(id), frameOf(KIND.end, id, '{}')]), /shape/],
  };
  for (const [what, [bytes, message]] of Object.entries(violations)) {
    it(`${what} ends the session, and the job that it names (RES-6, ISO-10)`, async () => {
      const { client, call } = await open(() => {});
      const other = assert.rejects(client.listJobs(), (error: Error) => {
        assert.match(error.message, /the session with the guest broke off/);
        return !(error instanceof GuestProtocolError);
      });
      const reading = client.startJob('j', SPEC, 2 ** 20).then(readAll);
      const broken = assert.rejects(reading, (error: Error) => {
        assert.match(error.message, message);
        return error instanceof GuestProtocolError;
      });
      const { id } = await call(1);
      (await call(1)).send(bytes(id));
      await Promise.all([broken, other, client.closed]);
      await assert.rejects(client.listJobs(), /session with the guest is over/);
    });
  }

  const strays: Record<string, (id: number) => Buffer> = {
    'the call 0': () => answerOf(0, 200, '{}'),
    'a call that was never made': (id) => answerOf(id + 1, 200, '{}'),
    'a call that is over': (id) => Buffer.concat([answerOf(id, 200, '{"jobs":[]}'), frameOf(KIND.broken, id)]),
    'a call without output': (id) => beginOf(id),
  };
  for (const [what, bytes] of Object.entries(strays)) {
    it(`a frame for ${what} ends the session (ISO-10)`, async () => {
      const { client, call } = await open(() => {});
      const listing = client.listJobs().catch(() => {});
      const { id } = await call(0);
      (await call(0)).send(bytes(id));
      await Promise.all([client.closed, listing]);
    });
  }

  it('bytes that come with the echo, before any call, end the session', async () => {
    const { client, guest } = await open(() => {});
    guest.write(answerOf(1, 200));
    await client.closed;
  });

  it('output without credit ends the session (RES-6)', async () => {
    const { client, call } = await open(() => {});
    const starting = client.startJob('j', SPEC, 2 ** 20);
    const { id } = await call(0);
    const most = 256 * 1024 - 3 * 65_544 - 8;
    const full = [0, 1, 2].map((at) => outputOf(id, at * 65_536, Buffer.alloc(65_536)));
    (await call(0)).send(beginOf(id), ...full, outputOf(id, 3 * 65_536, Buffer.alloc(most)));
    const frames = await starting;
    const listing = client.listJobs();
    (await call(1)).answer(200, '{"jobs":[]}');
    assert.deepEqual(await listing, [], 'the credit may be used up');
    (await call(0)).send(outputOf(id, 3 * 65_536 + most, 'x'));
    await client.closed;
    let bytes = 0;
    await assert.rejects(async () => {
      for await (const frame of frames) if (frame.type === 'output') bytes += frame.bytes.length;
    }, /stdout without credit/);
    assert.equal(bytes, 3 * 65_536 + most, 'the reader gets what was sent within the credit');
  });

  it('a cancelled stream may use up its credit, and no more (RES-6)', async () => {
    const { client, call } = await open(() => {});
    const starting = client.startJob('j', SPEC, 2 ** 20);
    const job = await call(0);
    job.send(beginOf(job.id), outputOf(job.id, 0, 'x'));
    for await (const _ of await starting) break;
    if (!job.isCancelled) await once(job.changes, 'change');
    for (let at = 0; at < 3; at++) job.send(outputOf(job.id, 1 + at * 65_536, Buffer.alloc(65_536)));
    const listing = client.listJobs();
    (await call(1)).answer(200, '{"jobs":[]}');
    assert.deepEqual(await listing, []);
    for (let at = 3; at < 5; at++) job.send(outputOf(job.id, 1 + at * 65_536, Buffer.alloc(65_536)));
    await client.closed;
    assert.deepEqual(job.grants, []);
  });

  it('the host stops reading while more than 8 MiB are unread, and reads on when some were taken (RES-6)', async () => {
    const JOBS = 40;
    const { client, host, calls } = await open(async (call) => {
      if (call.path === '/jobs') return call.answer(200, '{"jobs":[]}');
      call.send(beginOf(call.id));
      await call.output(0, Buffer.alloc(65_528 * 4));
    });
    const jobs: AsyncIterator<JobFrame>[] = [];
    for (let job = 0; job < JOBS; job++) {
      if (host.isPaused()) break;
      jobs.push((await client.startJob(`j${job}`, SPEC, 2 ** 20))[Symbol.asyncIterator]());
      await turns();
    }
    assert.ok(host.isPaused(), 'it is paused');
    assert.ok(jobs.length > 30 && jobs.length < 36, `after ${jobs.length} streams`);
    let isAnswered = false;
    const listing = client.listJobs().then(() => {
      isAnswered = true;
    });
    while (calls.length <= jobs.length) await turns(1);
    await turns();
    assert.equal(isAnswered, false);
    for (const job of jobs.slice(0, 3)) {
      await job.next();
      await job.return?.();
    }
    await listing;
    assert.equal(host.isPaused(), false);
  });

  it('output in frames of one byte is read within a budget, and read on when there is more of it (RES-6)', async () => {
    const manual = new ManualBudget();
    const { client, host } = await open(
      async (call) => {
        call.send(beginOf(call.id));
        for (let offset = 0; !call.isOver; offset += 960) {
          while (call.credit < 960 * 9 && !call.isOver) await once(call.changes, 'change');
          call.credit -= 960 * 9;
          call.send(...Array.from({ length: 960 }, (_, at) => outputOf(call.id, offset + at, 'x')));
          await new Promise((resolve) => setImmediate(resolve));
        }
      },
      { budget: manual.budget },
    );
    let bytes = 0;
    const reading = (async () => {
      for await (const frame of await client.startJob('j', SPEC, 2 ** 30))
        if (frame.type === 'output') bytes += frame.bytes.length;
    })();
    await manual.used();
    await turns();
    const first = bytes;
    assert.ok(host.isPaused());
    assert.ok(first > 50_000 && first < 400_000, `${first} frames at once`);
    const again = manual.used();
    manual.passSecond();
    await again;
    assert.ok(bytes > first, `${bytes} frames`);
    client.close();
    await assert.rejects(reading, /broke off/);
  });

  it('a guest that reads nothing is cut off before its requests fill the memory (ISO-10)', async () => {
    const { client, guest } = await open(() => {});
    guest.pause();
    const stdin = 'x'.repeat(1_900_000);
    const jobs = Array.from({ length: 40 }, (_, at) => client.startJob(`j${at}`, { ...SPEC, stdin }, 100));
    for (const job of jobs) await assert.rejects(job, /does not read|session with the guest is over/);
    await client.closed;
  });
});
