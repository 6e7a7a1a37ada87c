// Tests of the open stdin of jobs, and of signals, through the API on a fake host: by offset, in pieces, one request at
// a time, and for jobs and hosts that end in between.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Exec } from '@sandbar/contract/exec.ts';
import { patternOf } from './support/fake-host/jobs.ts';
import { FakeStdin } from './support/fake-stdin.ts';
import { until } from './support/postgres.ts';
import { type CallOptions, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16' },
  replicas: 2,
  timing: { stdinWaitMs: 1_500 },
});
const { api, host } = bed;
afterEach(() => host.heal());

const machine: string = (await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).json.id;
const jobs = new Map<string, FakeStdin>();
const signals: unknown[] = [];
host.guestCalls['jobs.stdin'] = (_machine, params: { id: string }) => {
  const job = jobs.get(params.id);
  if (!job) throw new ServiceError('not_found', 'no such job');
  return job.take(params as Parameters<FakeStdin['take']>[0]);
};
host.guestCalls['jobs.signal'] = (_machine, params: { id: string }) => {
  if (!jobs.has(params.id)) throw new ServiceError('not_found', 'no such job');
  signals.push(params);
  return {};
};

async function open(): Promise<{ id: string; path: string; stdin: FakeStdin }> {
  const id = randomUUID();
  const stdin = new FakeStdin();
  jobs.set(id, stdin);
  const body = { command: 'sleep', exec_id: id, stdin_open: true };
  assert.equal((await api('POST', `/v1/machines/${machine}/execs`, { body })).status, 201);
  return { id, path: `/v1/machines/${machine}/execs/${id}`, stdin };
}
const bytes = (content: string | Buffer) => new Uint8Array(Buffer.from(content));
const put = (path: string, query: string, content: string | Buffer = '', options: CallOptions = {}) =>
  api('PUT', `${path}/stdin?${query}`, { rawBody: bytes(content), ...options });
/** Ends the job on the host and in the guest, which forgets it. */
function end(id: string, stdinBytes?: number): void {
  jobs.delete(id);
  host.endJob(machine, id, stdinBytes === undefined ? {} : { stdin_bytes: stdinBytes });
}

describe('PUT …/stdin', () => {
  it('tells the host to leave stdin open', async () => {
    const { id } = await open();
    assert.equal(host.machines.get(machine)?.jobs.get(id)?.wanted.stdin_open, true);
    end(id);
  });

  it('appends any bytes of any content type, and a repetition writes nothing twice', async () => {
    const { id, path, stdin } = await open();
    const content = patternOf(1000);
    for (const type of ['application/json', 'text/plain; charset=x', 'application/octet-stream', 'x/y']) {
      const answer = await put(path, 'offset=0', content, { headers: { 'content-type': type } });
      assert.deepEqual([answer.status, answer.json], [200, { next_offset: 1000, closed: false }], type);
    }
    assert.deepEqual((await put(path, 'offset=998', Buffer.from('abcd'))).json, { next_offset: 1002, closed: false });
    assert.deepEqual(stdin.bytes, Buffer.concat([content, Buffer.from('cd')]));
    assert.equal((await api('PUT', `${path}/stdin?offset=0`)).json.next_offset, 1002, 'no body and no content type');
    end(id);
  });

  it('refuses a gap, a body over 1 MiB, and a request without a sane offset', async () => {
    const { id, path } = await open();
    const gap = await put(path, 'offset=1', 'x');
    assert.deepEqual([gap.status, gap.json.code], [409, 'conflict']);
    assert.match(gap.json.detail, /the next byte is at 0/);
    const large = await put(path, 'offset=0', Buffer.alloc(1024 * 1024 + 1));
    assert.deepEqual([large.status, large.json.code], [413, 'payload_too_large']);
    for (const [query, why] of [
      ['', /offset is required/],
      ['offset=-1', /offset must be an integer from 0/],
      ['offset=x', /offset must be an integer/],
      ['offset=0&close=yes', /close must be true or false/],
      ['offset=0&end=true', /Unknown query parameter "end"/],
    ] as const) {
      const answer = await put(path, query, 'x');
      assert.deepEqual([answer.status, answer.json.code], [400, 'validation_error'], query);
      assert.match(answer.json.detail, why);
    }
    end(id);
  });

  it('sends 1 MiB in pieces, closes after the last, and a repeated close is fine', async () => {
    const { id, path, stdin } = await open();
    const content = patternOf(1024 * 1024);
    for (let round = 0; round < 2; round++) {
      assert.deepEqual((await put(path, 'offset=0&close=true', content)).json, { next_offset: 1048576, closed: true });
    }
    assert.deepEqual(stdin.bytes, content);
    assert(stdin.calls.every((call) => Buffer.from(call.data, 'base64').length <= 128 * 1024));
    const closes = stdin.calls.filter((call) => call.close);
    assert(closes.every((call) => call.offset + Buffer.from(call.data, 'base64').length === 1048576));
    end(id);
  });

  it('waits while the command does not read, and then says how much was accepted', async () => {
    const { id, path, stdin } = await open();
    stdin.capacity = 65_536;
    const content = patternOf(300_000);
    const slow = await put(path, 'offset=0&close=true', content);
    assert.deepEqual([slow.status, slow.json], [200, { next_offset: 65_536, closed: false }]);
    const rest = put(path, 'offset=65536&close=true', content.subarray(65_536));
    await until(() => stdin.now > 0, 'the guest is asked');
    stdin.capacity = Number.POSITIVE_INFINITY;
    assert.deepEqual((await rest).json, { next_offset: 300_000, closed: true });
    assert.deepEqual(stdin.bytes, content);
    end(id);
  });

  it('sixteen requests with the same bytes at once write them once, and wait for each other', async () => {
    const { id, path, stdin } = await open();
    const content = patternOf(400_000);
    for (let offset = 0; offset < content.length; offset += 100_000) {
      const piece = content.subarray(offset, offset + 100_000);
      const answers = await Promise.all(Array.from({ length: 16 }, () => put(path, `offset=${offset}`, piece)));
      for (const { status, json } of answers) assert.deepEqual([status, json.next_offset], [200, offset + 100_000]);
    }
    assert.deepEqual(stdin.bytes, content);
    assert.equal(stdin.most, 1, 'one call to the guest at a time');
    // Other replicas do not know of each other. The guest keeps their requests apart.
    const second = bed.replicas[1] ?? bed.plane;
    const twice = [put(path, 'offset=400000', 'x'), put(path, 'offset=400000', 'x', { plane: second })];
    for (const { json } of await Promise.all(twice)) assert.equal(json.next_offset, 400_001);
    end(id);
  });

  it('for an ended job, a repetition is answered as before and new bytes are a conflict', async () => {
    const { id, path } = await open();
    await put(path, 'offset=0', 'hello');
    end(id, 5);
    for (let round = 0; round < 2; round++) {
      assert.deepEqual((await put(path, 'offset=0', 'hello')).json, { next_offset: 5, closed: true });
      assert.deepEqual((await put(path, 'offset=5&close=true')).json, { next_offset: 5, closed: true });
      for (const [query, content] of [
        ['offset=5', 'x'],
        ['offset=4', 'ox'],
        ['offset=9', ''],
      ] as const) {
        const answer = await put(path, query, content);
        assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
        assert.match(answer.json.detail, /The job has ended, .* It had accepted 5 bytes\./);
      }
      await until(async () => (await api<Exec>('GET', path)).json.status === 'exited', 'the end is recorded');
    }
  });

  it('bytes that overtake the start of the job wait for it', async () => {
    const { id, path, stdin } = await open();
    jobs.delete(id);
    const putting = put(path, 'offset=0', 'early');
    const asked = host.callsOf('getJob');
    await until(() => host.callsOf('getJob') > asked + 1, 'the host is asked whether the job has ended');
    jobs.set(id, stdin);
    assert.deepEqual((await putting).json, { next_offset: 5, closed: false });
    end(id);
  });

  it('for a job that was lost, everything is a conflict, because nobody knows what it had accepted', async () => {
    const { id, path } = await open();
    await put(path, 'offset=0', 'hello');
    jobs.delete(id);
    host.endJob(machine, id, { status: 'lost', exit_code: null });
    const answer = await put(path, 'offset=0', 'hello');
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
  });

  it('tells what the guest refuses: stdin that was never open, was closed, or that the command closed', async () => {
    const { id, path, stdin } = await open();
    stdin.refusal = new ServiceError('conflict', 'the command has closed its standard input');
    const answer = await put(path, 'offset=0', 'x');
    assert.deepEqual(
      [answer.status, answer.json],
      [409, { code: 'conflict', detail: 'the command has closed its standard input' }],
    );
    end(id);
  });

  it('a host that does not answer once goes unnoticed, and one that stays away is 503', async () => {
    const { id, path, stdin } = await open();
    const away = new ServiceError('host_unavailable', 'The host does not answer.');
    const { take } = stdin;
    stdin.take = async (call) => {
      stdin.take = take;
      await stdin.take(call);
      throw away;
    };
    assert.deepEqual((await put(path, 'offset=0', 'once')).json, { next_offset: 4, closed: false });
    assert.equal(stdin.bytes.toString(), 'once');
    host.fault('callGuest', away);
    const answer = await put(path, 'offset=4', 'again');
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    assert(answer.headers.get('retry-after'));
    host.heal();
    assert.deepEqual((await put(path, 'offset=4', 'again')).json, { next_offset: 9, closed: false });
    assert.equal(stdin.bytes.toString(), 'onceagain');
    end(id);
  });

  it('a guest that lies about its progress is not asked without end', async () => {
    const { id, path, stdin } = await open();
    stdin.take = async (call) => {
      stdin.calls.push(call);
      return { next_offset: 0, closed: false };
    };
    assert.deepEqual((await put(path, 'offset=0', 'x')).json, { next_offset: 0, closed: false });
    assert.equal(stdin.calls.length, 1);
    stdin.take = async () => ({ next_offset: -1, closed: 'x' });
    assert.equal((await put(path, 'offset=0', 'x')).status, 500);
    end(id);
  });

  it('is not limited in its rate, as typing is many small requests', async () => {
    const { id, path } = await open();
    const answer = await put(path, 'offset=0', 'x');
    assert.equal(answer.headers.get('ratelimit-limit'), null);
    end(id);
  });
});

describe('POST …/signal', () => {
  const signal = (path: string, body: object) => api('POST', `${path}/signal`, { body });

  it('reaches the job and answers it', async () => {
    const { id, path } = await open();
    for (const name of ['INT', 'TERM', 'HUP', 'KILL', 'USR1', 'USR2', 'QUIT']) {
      const answer = await signal(path, { signal: name });
      assert.deepEqual([answer.status, answer.json.id, answer.json.status], [200, id, 'running']);
      assert.deepEqual(signals.at(-1), { id, signal: name });
    }
    for (const body of [{}, { signal: 'SIGINT' }, { signal: 2 }, { signal: 'INT', x: 1 }]) {
      assert.equal((await signal(path, body)).status, 400);
    }
    end(id);
  });

  it('waits for a job whose start it has overtaken', async () => {
    const { id, path, stdin } = await open();
    jobs.delete(id);
    const count = signals.length;
    const signalling = signal(path, { signal: 'INT' });
    const asked = host.callsOf('getJob');
    await until(() => host.callsOf('getJob') > asked + 1, 'the host is asked whether the job has ended');
    assert.equal(signals.length, count);
    jobs.set(id, stdin);
    assert.equal((await signalling).status, 200);
    assert.deepEqual(signals.at(-1), { id, signal: 'INT' });
    end(id);
  });

  it('answers an ended job as it is', async () => {
    const { id, path } = await open();
    end(id);
    const count = signals.length;
    for (let round = 0; round < 2; round++) {
      const answer = await signal(path, { signal: 'TERM' });
      assert.deepEqual([answer.status, answer.json.status, answer.json.exit_code], [200, 'exited', 0]);
    }
    assert.equal(signals.length, count);
  });
});

describe('a machine with an older guest agent', () => {
  it('refuses both with the way out', async () => {
    const { id, path } = await open();
    const { guestCalls } = host;
    const saved = { ...guestCalls };
    delete guestCalls['jobs.stdin'];
    delete guestCalls['jobs.signal'];
    for (const answer of [
      await put(path, 'offset=0', 'x'),
      await api('POST', `${path}/signal`, { body: { signal: 'INT' } }),
    ]) {
      assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
      assert.match(answer.json.detail, /created by an older version .* create a new one/);
    }
    Object.assign(guestCalls, saved);
    end(id);
  });
});
