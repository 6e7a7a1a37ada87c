// Tests of exec jobs through the API: start, wait, output by page and as events, the limit of 16 jobs, cancel, and
// hosts that fail.
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Exec, ExecOutput } from '@sandbar/contract/exec.ts';
import { patternOf } from './support/fake-host/jobs.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ host: { subnet: '10.83.0.0/16' } });
const { api, host } = bed;
const newMachine = async (): Promise<string> => (await api('POST', '/v1/machines')).json.id;
const shared = await newMachine();
const start = (body: object, machine = shared) => api<Exec>('POST', `/v1/machines/${machine}/execs`, { body });

describe('exec', () => {
  it('start answers 201 with the real timeout_sec, which is null everywhere else', async () => {
    const started = await start({ command: 'sleep', timeout_sec: 77 });
    assert.equal(started.status, 201);
    assert.deepEqual([started.json.status, started.json.timeout_sec], ['running', 77]);
    const path = `/v1/machines/${shared}/execs/${started.json.id}`;
    assert.equal((await api('GET', path)).json.timeout_sec, null);
    const canceled = (await api('POST', `${path}/cancel`)).json;
    assert.deepEqual([canceled.status, canceled.timeout_sec, canceled.signal], ['canceled', null, 'SIGTERM']);
    assert.equal((await start({ command: 'true' })).json.timeout_sec, 3600);
  });

  it('a wait ends when the job does', async () => {
    const { id } = (await start({ command: 'sleep' })).json;
    const waiting = api('GET', `/v1/machines/${shared}/execs/${id}?wait_ms=60000`);
    await until(() => host.callsOf('getJob') > 0, 'the host is being asked');
    host.endJob(shared, id, { exit_code: 3 });
    const { status, exit_code, finished_at } = (await waiting).json;
    assert.deepEqual([status, exit_code], ['exited', 3]);
    assert(finished_at);
  });

  it('a wait that is over answers the running job with its byte counts', async () => {
    const { id } = (await start({ command: 'sleep' })).json;
    host.append(shared, id, Buffer.from('12345'));
    const { json } = await api('GET', `/v1/machines/${shared}/execs/${id}?wait_ms=50`);
    assert.deepEqual([json.status, json.stdout_bytes], ['running', 5]);
    const listed = (await api('GET', `/v1/machines/${shared}/execs?status=running`)).json.execs;
    assert.equal(listed.find((exec: Exec) => exec.id === id).stdout_bytes, 5);
    host.endJob(shared, id);
  });

  it('cancelling an ended job answers it as it is', async () => {
    const { id } = (await start({ command: 'exit 4' })).json;
    await api('GET', `/v1/machines/${shared}/execs/${id}?wait_ms=5000`);
    const { json } = await api('POST', `/v1/machines/${shared}/execs/${id}/cancel`);
    assert.deepEqual([json.status, json.exit_code], ['exited', 4]);
  });

  it('a cancel that overtakes the start of the job cancels it', async () => {
    const exec_id = randomUUID();
    const path = `/v1/machines/${shared}/execs/${exec_id}`;
    host.fault('startJob', 'hang', 1);
    const starting = start({ command: 'sleep', exec_id });
    await until(async () => (await api('GET', path)).json.status === 'running', 'the row is written');
    const asked = host.callsOf('cancel');
    const canceling = api('POST', `${path}/cancel`);
    await until(() => host.callsOf('cancel') > asked + 1, 'the host is asked again');
    host.release();
    assert.equal((await starting).status, 201);
    assert.equal((await canceling).json.status, 'canceled');
  });

  it('a cancel of a job that the machine refuses to start is a 404', async () => {
    const exec_id = randomUUID();
    const path = `/v1/machines/${shared}/execs/${exec_id}`;
    host.fault('startJob', 'hangThenFail', 1);
    const starting = start({ command: 'sleep', exec_id });
    await until(async () => (await api('GET', path)).json.status === 'running', 'the row is written');
    const canceling = api('POST', `${path}/cancel`);
    await until(() => host.callsOf('cancel') > 0, 'the host is asked');
    host.release();
    assert.equal((await starting).status, 500);
    assert.equal((await canceling).status, 404);
  });

  it('takes an exec_id once, whatever became of the first', async () => {
    const exec_id = randomUUID();
    assert.equal((await start({ command: 'true', exec_id })).json.id, exec_id);
    for (const again of [exec_id, exec_id.toUpperCase()]) {
      const answer = await start({ command: 'true', exec_id: again });
      assert.deepEqual(
        [answer.status, answer.json],
        [409, { detail: 'exec_id was used before on this machine.', code: 'conflict' }],
      );
    }
    const foreign = await newMachine();
    assert.equal((await start({ command: 'true', exec_id }, foreign)).status, 201, 'ids of other machines say nothing');
  });

  it('lists newest first, by status and by page', async () => {
    const machine = await newMachine();
    const ids: string[] = [];
    for (let index = 0; index < 5; index++) ids.unshift((await start({ command: 'true' }, machine)).json.id);
    const path = `/v1/machines/${machine}/execs`;
    assert.deepEqual(
      (await api('GET', path)).json.execs.map((exec: Exec) => exec.id),
      ids,
    );
    const first = (await api('GET', `${path}?page_size=3`)).json;
    const second = (await api('GET', `${path}?page_size=3&cursor=${first.next_cursor}`)).json;
    assert.deepEqual(
      [...first.execs, ...second.execs].map((exec: Exec) => exec.id),
      ids,
    );
    assert.equal(second.next_cursor, '');
  });

  it('needs a running machine', async () => {
    const machine = await newMachine();
    await api('POST', `/v1/machines/${machine}/stop`);
    const answer = await start({ command: 'true' }, machine);
    assert.equal(answer.status, 409);
    assert.match(answer.text, /stopped/);
  });
});

describe('the limit of 16 jobs', () => {
  it('30 starts at once make exactly 16; one ending frees its place', async () => {
    const machine = await newMachine();
    const answers = await Promise.all(Array.from({ length: 30 }, () => start({ command: 'sleep' }, machine)));
    const made = answers.filter((answer) => answer.status === 201);
    assert.equal(made.length, 16);
    for (const refused of answers.filter((answer) => answer.status !== 201)) {
      assert.deepEqual([refused.status, (refused.json as unknown as { code: string }).code], [409, 'conflict']);
    }
    assert.equal((await start({ command: 'sleep' }, machine)).status, 409);
    const ended = made[0]?.json.id ?? '';
    host.endJob(machine, ended);
    await api('GET', `/v1/machines/${machine}/execs/${ended}?wait_ms=1000`);
    assert.equal((await start({ command: 'sleep' }, machine)).status, 201);
  });
});

describe('a job and its host', () => {
  it('ends in the database by the event, without anybody asking', async () => {
    const { id } = (await start({ command: 'sleep' })).json;
    host.endJob(shared, id, { exit_code: 9 });
    const row = () => bed.plane.app.db.selectFrom('execs').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    await until(async () => (await row()).status === 'exited', 'the event was applied');
    assert.equal((await row()).exit_code, 9);
  });

  it('a refusal frees the place and is passed on', async () => {
    const machine = await newMachine();
    host.fault('startJob', new ServiceError('validation_error', 'cwd does not exist in the machine.'), 1);
    const answer = await start({ command: 'true', cwd: '/nowhere' }, machine);
    assert.deepEqual(
      [answer.status, answer.text],
      [400, '{"detail":"cwd does not exist in the machine.","code":"validation_error"}'],
    );
    assert.deepEqual((await api('GET', `/v1/machines/${machine}/execs`)).json.execs, []);
  });

  it('an answer that got lost is asked for again', async () => {
    const machine = await newMachine();
    host.fault('startJob', 'dropAfter', 2);
    const answer = await start({ command: 'sleep' }, machine);
    assert.equal(answer.status, 201);
    assert.equal(host.machines.get(machine)?.jobs.size, 1);
  });

  it('an unknown outcome is a 503, and the row does not stay running', async () => {
    const machine = await newMachine();
    host.fault('startJob', 'drop');
    host.fault('getJob', 'drop');
    const answer = await start({ command: 'sleep' }, machine);
    assert.deepEqual([answer.status, (answer.json as unknown as { code: string }).code], [503, 'host_unavailable']);
    assert(answer.headers.get('retry-after'));
    host.heal();
    await until(
      async () => (await api('GET', `/v1/machines/${machine}/execs`)).json.execs[0]?.status === 'lost',
      'the reconciler settled it',
    );
  });

  it('jobs of a machine that stops or dies are lost; one that ended in time keeps its result', async () => {
    for (const end of ['stop', 'die', 'delete']) {
      const machine = await newMachine();
      const running = (await start({ command: 'sleep' }, machine)).json.id;
      host.isMute = true;
      const ended = (await start({ command: 'exit 5' }, machine)).json.id;
      host.isMute = false;
      if (end === 'stop') await api('POST', `/v1/machines/${machine}/stop`);
      if (end === 'die') host.end(machine, 'failed', 'killed');
      if (end === 'delete') await api('DELETE', `/v1/machines/${machine}`);
      const path = `/v1/machines/${machine}/execs`;
      await until(
        async () => (await api('GET', `${path}/${running}`)).json.status === 'lost',
        `${end}: the job is lost`,
      );
      assert((await api('GET', `${path}/${running}`)).json.finished_at);
      if (end !== 'delete') assert.equal((await api('GET', `${path}/${ended}`)).json.exit_code, 5, end);
    }
  });
});

describe('output', () => {
  const read = async (path: string): Promise<Buffer> => {
    const pages: Buffer[] = [];
    for (let offset = 0; ; ) {
      const { json } = await api<ExecOutput>('GET', `${path}?offset=${offset}&limit=100000`);
      pages.push(Buffer.from(json.data, 'base64'));
      offset = json.next_offset;
      if (json.eof) return Buffer.concat(pages);
    }
  };

  it('pages are the exact bytes, again and also after a stop', async () => {
    const machine = await newMachine();
    const { id } = (await start({ command: 'bytes 1234567' }, machine)).json;
    const path = `/v1/machines/${machine}/execs/${id}/output`;
    const expected = patternOf(1_234_567);
    assert(expected.equals(await read(path)));
    await api('POST', `/v1/machines/${machine}/stop`);
    assert(expected.equals(await read(path)));
    const past = (await api<ExecOutput>('GET', `${path}?offset=9999999`)).json;
    assert.deepEqual([past.data, past.eof, past.total_bytes], ['', true, 1_234_567]);
    assert.equal((await api<ExecOutput>('GET', `${path}?stream=stderr`)).json.total_bytes, 0);
  });

  it('of a destroyed machine is a 404, its jobs stay listed', async () => {
    const machine = await newMachine();
    const { id } = (await start({ command: 'print hello' }, machine)).json;
    await api('DELETE', `/v1/machines/${machine}`);
    assert.equal((await api('GET', `/v1/machines/${machine}/execs/${id}/output`)).status, 404);
    assert.equal((await api('GET', `/v1/machines/${machine}/execs`)).json.execs.length, 1);
  });

  it('a wait ends when there are bytes', async () => {
    const { id } = (await start({ command: 'sleep' })).json;
    const waiting = api<ExecOutput>('GET', `/v1/machines/${shared}/execs/${id}/output?wait_ms=30000`);
    host.append(shared, id, Buffer.from('news'));
    assert.equal(Buffer.from((await waiting).json.data, 'base64').toString(), 'news');
    host.endJob(shared, id);
  });
});

describe('output as server-sent events', () => {
  type Event = { id: number; data: ExecOutput };
  const open = (path: string, headers: Record<string, string> = {}) => {
    const { host: address, port } = bed.plane.address;
    return fetch(`http://${address}:${port}${path}`, {
      headers: { authorization: `Bearer ${bed.keys.read}`, accept: 'text/event-stream', ...headers },
    });
  };
  const parse = (text: string): Event[] =>
    text
      .split('\n\n')
      .filter((block) => block.startsWith('id:'))
      .map((block) => {
        const [, id, data] = /^id: (\d+)\ndata: (.*)$/.exec(block) ?? [];
        return { id: Number(id), data: JSON.parse(data ?? '{}') };
      });

  it('pushes pages until eof, with heartbeats in silence', async () => {
    const { id } = (await start({ command: 'sleep' })).json;
    const response = await open(`/v1/machines/${shared}/execs/${id}/output`);
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    assert(response.headers.get('x-request-id'));
    const text = response.text();
    host.append(shared, id, Buffer.from('one '));
    await new Promise((resolve) => setTimeout(resolve, 500));
    host.append(shared, id, Buffer.from('two'));
    host.endJob(shared, id);
    const events = parse(await text);
    assert.match(await text, /^:$/m);
    assert.equal(Buffer.concat(events.map((event) => Buffer.from(event.data.data, 'base64'))).toString(), 'one two');
    for (const event of events) assert.equal(event.id, event.data.next_offset);
    assert.deepEqual(events.map((event) => event.data.eof).slice(-1), [true]);
  });

  it('resumes at Last-Event-ID', async () => {
    const { id } = (await start({ command: 'print 0123456789' })).json;
    const response = await open(`/v1/machines/${shared}/execs/${id}/output?offset=1`, { 'last-event-id': '4' });
    const [event] = parse(await response.text());
    assert.equal(Buffer.from(event?.data.data ?? '', 'base64').toString(), '456789');
    assert.equal((await open(`/v1/machines/${shared}/execs/${id}/output`, { 'last-event-id': 'x' })).status, 400);
  });

  it('a reader that sleeps gets every byte, and is not read ahead of', async () => {
    const size = 16 * 1024 * 1024;
    const { id } = (await start({ command: `bytes ${size}` })).json;
    const before = host.callsOf('output');
    const response = await open(`/v1/machines/${shared}/execs/${id}/output?limit=1048576`);
    await new Promise((resolve) => setTimeout(resolve, 300));
    // The reader has read nothing, so the host was asked for less than 12 MiB, in pages of 32 KiB. It is more than a
    // few pages, because the operating system buffers some of the data.
    assert(host.callsOf('output') - before < 12 * 32, 'the spool is read at the pace of the reader');
    const hash = createHash('sha256');
    for (const event of parse(await response.text())) hash.update(Buffer.from(event.data.data, 'base64'));
    assert.equal(hash.digest('hex'), createHash('sha256').update(patternOf(size)).digest('hex'));
  });

  it('goes on over a restart of the host agent', async () => {
    const machine = await newMachine();
    const { id } = (await start({ command: 'sleep' }, machine)).json;
    const response = await open(`/v1/machines/${machine}/execs/${id}/output`);
    const text = response.text();
    host.append(machine, id, Buffer.from('before '));
    await until(() => host.callsOf('output') > 1, 'the stream reads');
    await host.away();
    host.append(machine, id, Buffer.from('after'));
    await host.listen();
    host.endJob(machine, id);
    const bytes = Buffer.concat(parse(await text).map((event) => Buffer.from(event.data.data, 'base64')));
    assert.equal(bytes.toString(), 'before after');
  });

  it('is refused like any request when there is no such job', async () => {
    const response = await open(`/v1/machines/${shared}/execs/${randomUUID()}/output`);
    assert.deepEqual(
      [response.status, await response.json()],
      [404, { detail: 'There is no such job.', code: 'not_found' }],
    );
  });
});
