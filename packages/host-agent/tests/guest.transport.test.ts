// Tests the session in frames against a guest that follows the protocol and one that does not: whatever the guest sends
// or leaves out, every call ends, and what the guest may not send ends the session.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { KIND } from '../src/guest/frame-codec.ts';
import { FrameTransport } from '../src/guest/frame-transport.ts';
import type { JobFrame } from '../src/guest/guest.ts';
import { GuestClient } from '../src/guest/guest-client.ts';
import { GuestProtocolError } from '../src/guest/guest-protocol-error.ts';
import { WorkBudget } from '../src/guest/work-budget.ts';
import { answerOf, beginOf, endOf, frameOf, type GuestCall, outputOf, serveFrames } from './support/frame-guest.ts';

const JOB = {
  id: 'j',
  status: 'exited',
  exit_code: 0,
  signal: null,
  stdout_bytes: 0,
  stderr_bytes: 0,
  truncated: false,
};
const SPEC = { command: 'true', timeout_sec: 1 };
/** The host answers one event of its socket after the other, so this many turns are enough for what was sent. */
const TURNS = 50;

async function turns(count = TURNS): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

describe('session in frames', { timeout: 60_000 }, () => {
  const path = `/tmp/sandbar-frames-${process.pid}.sock`;
  const server = createServer();
  const clients: GuestClient[] = [];
  before(() => new Promise<void>((resolve) => server.listen(path, resolve)));
  after(() => {
    for (const client of clients) client.close();
    server.close();
    rmSync(path, { force: true });
  });

  /** Opens a session. `respond` is called with each request. */
  async function open(respond: (call: GuestCall) => void, options: { timeoutMs?: number; budget?: WorkBudget } = {}) {
    const accepted = once(server, 'connection');
    const host = connect(path);
    const [guest] = (await accepted) as [Socket];
    guest.on('error', () => {});
    const calls: GuestCall[] = [];
    const arrivals = new EventEmitter();
    serveFrames(guest, (call) => {
      calls.push(call);
      respond(call);
      arrivals.emit('call');
    });
    const client = new GuestClient(new FrameTransport(host, options.budget), options.timeoutMs);
    clients.push(client);
    const call = async (number: number): Promise<GuestCall> => {
      while (!calls[number]) await once(arrivals, 'call');
      return calls[number] as GuestCall;
    };
    return { client, host, guest, calls, call };
  }

  const readAll = async (frames: AsyncIterable<JobFrame>): Promise<{ out: string; err: string; ended: boolean }> => {
    const seen = { out: '', err: '', ended: false };
    for await (const frame of frames) {
      if (frame.type === 'end') seen.ended = true;
      else seen[frame.stream === 'stdout' ? 'out' : 'err'] += frame.bytes.toString();
    }
    return seen;
  };

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

  const violations: Record<string, [(id: number) => Buffer, RegExp]> = {
    'an unknown kind': [(id) => frameOf(70, id), /unknown kind 70/],
    'a kind that only the host sends': [(id) => frameOf(KIND.request, id), /unknown kind 1/],
    'an answer without a status': [(id) => frameOf(KIND.answer, id, 'x'), /kind 64 with a payload of 1 bytes/],
    'an answer that claims more than 1 MiB': [
      (id) => frameOf(KIND.answer, id, '', 2 ** 20 + 3),
      /kind 64 with a payload of 1048579/,
    ],
    'a length of 4 GiB': [(id) => frameOf(KIND.answer, id, '', 2 ** 32 - 1), /payload of 4294967295/],
    'a beginning with more than a status': [(id) => frameOf(KIND.begin, id, 'xxx'), /kind 65 with a payload of 3/],
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
    let now = 0;
    let wake: (() => void) | undefined;
    const asleep: (() => void)[] = [];
    const budget = new WorkBudget({
      now: () => now,
      wait: () => {
        asleep.shift()?.();
        return new Promise<void>((resolve) => {
          wake = resolve;
        });
      },
    });
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
      { budget },
    );
    let bytes = 0;
    const reading = (async () => {
      for await (const frame of await client.startJob('j', SPEC, 2 ** 30))
        if (frame.type === 'output') bytes += frame.bytes.length;
    })();
    const isAsleep = () => new Promise<void>((resolve) => void asleep.push(resolve));
    await isAsleep();
    await turns();
    const first = bytes;
    assert.ok(host.isPaused());
    assert.ok(first > 50_000 && first < 400_000, `${first} frames at once`);
    const again = isAsleep();
    now += 1000;
    wake?.();
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
