// Jobs on a real microVM: their output is exact to the byte, their exit codes and signals are right, and no process of
// a job escapes a cancel.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { Exec, ExecOutput, ExecStarted } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import {
  API_KEY,
  BASE_URL,
  call,
  createMachine,
  destroyMachine,
  expectStatus,
  pidOf,
  readAll,
  readPage,
  residentMb,
  sh,
  startExec,
  until,
  waitForExec,
} from './support/service.ts';

describe('execs', () => {
  let machine: Machine;
  before(async () => {
    machine = await createMachine({ memory_mb: 512, rootfs_size_gb: 4, env: { OF_MACHINE: 'm', OF_BOTH: 'm' } });
  });
  after(() => destroyMachine(machine.id));

  it('a job reports the exit code, the output sizes and the time limit of its command', async () => {
    const started = await startExec(machine.id, { command: 'echo out; echo err >&2; exit 7', timeout_sec: 60 });
    assert.equal(started.timeout_sec, 60);
    const ended = await waitForExec(machine.id, started.id);
    assert.deepEqual(
      [
        ended.status,
        ended.exit_code,
        ended.signal,
        ended.timeout_sec,
        ended.stdout_bytes,
        ended.stderr_bytes,
        ended.truncated,
      ],
      ['exited', 7, null, null, 4, 4, false],
    );
    assert.equal((await readAll(machine.id, started.id)).toString(), 'out\n');
    assert.equal((await readAll(machine.id, started.id, 'stderr')).toString(), 'err\n');
  });

  it('argv, env, cwd, user and stdin are honoured', async () => {
    const stdin = Buffer.from([0, 255, 10, 13, 128]);
    const job = await startExec(machine.id, {
      argv: ['sh', '-c', 'echo "$A|$PWD|$(id -un)|$0"; od -An -tx1', 'zero "quoted"'],
      env: { A: 'x y' },
      cwd: '/tmp',
      user: 'nobody',
      stdin: stdin.toString('base64'),
    });
    await waitForExec(machine.id, job.id);
    assert.equal((await readAll(machine.id, job.id)).toString(), 'x y|/tmp|nobody|zero "quoted"\n 00 ff 0a 0d 80\n');
  });

  it('one request runs a short command and returns its merged output, with the environment of the machine', async () => {
    const command = 'echo "$OF_MACHINE"; echo "$OF_BOTH" >&2; echo end';
    const path = `/v1/machines/${machine.id}/execs?wait_ms=60000`;
    const job = { command, merge_output: true, env: { OF_BOTH: 'j' } };
    const { status, exit_code, output } = await expectStatus<ExecStarted>(201, 'POST', path, job);
    assert.deepEqual([status, exit_code], ['exited', 0]);
    const pages = [output?.stdout, output?.stderr].map((page) => [atob(page?.data ?? 'no page'), page?.eof]);
    assert.deepEqual(pages, [
      ['m\nj\nend\n', true],
      ['', true],
    ]);
  });

  it('a start that waits answers with what there is when the command goes on', async () => {
    const path = `/v1/machines/${machine.id}/execs?wait_ms=1`;
    const job = { command: 'echo first; sleep 1000' };
    const { id, status, output } = await expectStatus<ExecStarted>(201, 'POST', path, job);
    assert.deepEqual([status, output?.stdout.eof], ['running', false]);
    const offset = output?.stdout.next_offset ?? 0;
    const rest = await readPage(machine.id, id, { offset, wait_ms: offset === 0 ? 60_000 : 0 });
    assert.equal([output?.stdout, rest].map((page) => atob(page?.data ?? 'no page')).join(''), 'first\n');
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/execs/${id}/cancel`);
  });

  it('a missing program exits with 127 and a message; a missing user or directory is a 400', async () => {
    const job = await startExec(machine.id, { argv: ['no-such-program'] });
    assert.equal((await waitForExec(machine.id, job.id)).exit_code, 127);
    assert.match((await readAll(machine.id, job.id, 'stderr')).toString(), /no-such-program: not found/);
    for (const bad of [{ user: 'no-such-user' }, { cwd: '/no/such/dir' }]) {
      const { status, body } = await call('POST', `/v1/machines/${machine.id}/execs`, { command: 'true', ...bad });
      assert.deepEqual([status, body.code], [400, 'validation_error']);
      assert.match(String(body.detail), /no.such/);
    }
  });

  it('a job that a signal ended reports the name of the signal', async () => {
    const job = await startExec(machine.id, { command: 'kill -KILL $$' });
    const ended = await waitForExec(machine.id, job.id);
    assert.deepEqual([ended.status, ended.exit_code, ended.signal], ['exited', null, 'SIGKILL']);
  });

  it('10 MB of random output are read back exactly, page by page and from any offset', async () => {
    const job = await startExec(machine.id, { command: 'head -c 10000000 /dev/urandom | tee /tmp/random' });
    const ended = await waitForExec(machine.id, job.id);
    assert.equal(ended.stdout_bytes, 10_000_000);
    const bytes = await readAll(machine.id, job.id);
    const { stdout } = await sh(machine.id, 'sha256sum < /tmp/random');
    assert.equal(createHash('sha256').update(bytes).digest('hex'), stdout.split(' ')[0]);
    for (const offset of [0, 1, 65_535, 65_536, 9_999_999]) {
      const page = await readPage(machine.id, job.id, { offset, limit: 10 });
      assert.ok(Buffer.from(page.data, 'base64').equals(bytes.subarray(offset, offset + 10)), `offset ${offset}`);
      assert.equal(page.total_bytes, 10_000_000);
    }
    const past = await readPage(machine.id, job.id, { offset: 20_000_000 });
    assert.deepEqual([past.data, past.eof], ['', true]);
  });

  it('output arrives as live events, and Last-Event-ID resumes after the last event', async () => {
    const job = await startExec(machine.id, { command: 'for i in 1 2 3; do echo line $i; sleep 0.3; done' });
    const first = await readEvents(job.id, 1);
    assert.equal(first.text, 'line 1\n');
    const rest = await readEvents(job.id, Number.POSITIVE_INFINITY, first.lastId);
    assert.equal(rest.text, 'line 2\nline 3\n');
    assert.equal(rest.eof, true);
  });

  async function readEvents(execId: string, most: number, lastId?: string) {
    const abort = new AbortController();
    const response = await fetch(`${BASE_URL}/v1/machines/${machine.id}/execs/${execId}/output?stream=stdout`, {
      headers: {
        authorization: `Bearer ${API_KEY}`,
        accept: 'text/event-stream',
        ...(lastId ? { 'last-event-id': lastId } : {}),
      },
      signal: abort.signal,
    });
    assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
    const seen = { text: '', lastId: '', eof: false };
    let events = 0;
    let pending = '';
    const chunks = response.body?.getReader();
    for (let read = await chunks?.read(); read && !read.done; read = await chunks?.read()) {
      pending += Buffer.from(read.value).toString();
      const parts = pending.split('\n\n');
      pending = parts.pop() ?? '';
      for (const part of parts) {
        const data = /^data: (.*)$/m.exec(part)?.[1];
        if (!data || events >= most) continue;
        const page = JSON.parse(data) as ExecOutput;
        seen.text += Buffer.from(page.data, 'base64').toString();
        seen.lastId = /^id: (.*)$/m.exec(part)?.[1] ?? '';
        seen.eof = page.eof;
        if (page.data !== '') events++;
      }
      if (events >= most) break;
    }
    abort.abort();
    return seen;
  }

  const ESCAPES = {
    setsid: 'setsid sh -c "trap : TERM; exec sleep 4321" & sleep 4322',
    'double fork': '(sh -c "sleep 4321 & sleep 4323 &" &) ; sleep 4322',
    'ignored TERM': 'trap "" TERM; sleep 4321; sleep 4322',
  };
  for (const [name, command] of Object.entries(ESCAPES)) {
    it(`cancel ends processes that try to escape: ${name}`, async () => {
      const job = await startExec(machine.id, { command });
      await until('it runs', async () => (await sleepers()) > 0);
      await expectStatus(200, 'POST', `/v1/machines/${machine.id}/execs/${job.id}/cancel`);
      const ended = await waitForExec(machine.id, job.id, 15_000);
      assert.equal(ended.status, 'canceled');
      assert.equal(await sleepers(), 0, 'nothing of the job is left');
      const again = await expectStatus<Exec>(200, 'POST', `/v1/machines/${machine.id}/execs/${job.id}/cancel`);
      assert.equal(again.status, 'canceled');
    });
  }

  it('a time-out ends processes that try to escape with setsid', async () => {
    const job = await startExec(machine.id, { command: ESCAPES.setsid, timeout_sec: 1 });
    const ended = await waitForExec(machine.id, job.id, 15_000);
    assert.equal(ended.status, 'timed_out');
    assert.equal(await sleepers(), 0);
  });

  async function sleepers(): Promise<number> {
    return Number((await sh(machine.id, 'ps -eo args | grep -c "^sleep 43[0-9]*$" || true')).stdout);
  }

  it('a job ends with its command, and a process that it left in the background goes on', async () => {
    const job = await startExec(machine.id, { command: 'sleep 1000 & echo started' });
    const ended = await waitForExec(machine.id, job.id, 10_000);
    assert.equal(ended.status, 'exited');
    assert.equal((await sh(machine.id, 'pgrep -cx sleep; pkill -x sleep')).stdout, '1\n');
  });

  it('16 jobs run at once, the 17th is a 409, and a job that ends makes room for another', async () => {
    const jobs = await Promise.all(Array.from({ length: 16 }, () => startExec(machine.id, { command: 'sleep 600' })));
    const refused = await call('POST', `/v1/machines/${machine.id}/execs`, { command: 'true' });
    assert.deepEqual([refused.status, refused.body.code], [409, 'conflict']);
    const first = jobs[0];
    assert.ok(first);
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/execs/${first.id}/cancel`);
    await waitForExec(machine.id, first.id, 15_000);
    const next = await startExec(machine.id, { command: 'true' });
    await waitForExec(machine.id, next.id);
    await Promise.all(jobs.slice(1).map(({ id }) => call('POST', `/v1/machines/${machine.id}/execs/${id}/cancel`)));
    for (const { id } of jobs.slice(1)) assert.equal((await waitForExec(machine.id, id, 15_000)).status, 'canceled');
  });

  it('an exec_id can be used only once', async () => {
    const exec_id = '6d5e2b3c-9a51-4d0e-8f57-0123456789ab';
    assert.equal((await startExec(machine.id, { command: 'true', exec_id })).id, exec_id);
    const { status, body } = await call('POST', `/v1/machines/${machine.id}/execs`, { command: 'true', exec_id });
    assert.deepEqual([status, body.code], [409, 'conflict']);
  });

  it('2 GB of output are cut at 256 MiB and marked as truncated; the command is not blocked, our memory does not grow', async () => {
    const pids = [pidOf('host-agent'), pidOf('control-plane')];
    const job = await startExec(machine.id, {
      command: 'head -c 2000000000 /dev/zero; echo done >&2',
      timeout_sec: 600,
    });
    const peaks = [0, 0];
    const watching = setInterval(() => {
      for (const [at, pid] of pids.entries()) peaks[at] = Math.max(peaks[at] ?? 0, residentMb(pid));
    }, 200);
    const ended = await waitForExec(machine.id, job.id, 600_000).finally(() => clearInterval(watching));
    assert.deepEqual([ended.status, ended.exit_code, ended.truncated], ['exited', 0, true]);
    assert.equal(ended.stdout_bytes, 256 * 1024 * 1024);
    assert.equal((await readAll(machine.id, job.id, 'stderr')).toString(), 'done\n');
    for (const peak of peaks) assert.ok(peak < 200, `a process grew to ${peak} MB`);
  });

  it('output stays readable after a stop of the machine, and a job that was running is lost', async () => {
    const done = await startExec(machine.id, { command: 'echo before' });
    await waitForExec(machine.id, done.id);
    const running = await startExec(machine.id, { command: 'trap "" TERM; echo begun; while :; do sleep 1; done' });
    await until('begun', async () => (await readPage(machine.id, running.id, {})).total_bytes === 6);
    await expectStatus(200, 'POST', `/v1/machines/${machine.id}/stop`);
    assert.equal((await waitForExec(machine.id, running.id, 5000)).status, 'lost');
    assert.equal((await readAll(machine.id, running.id)).toString(), 'begun\n');
    assert.equal((await readAll(machine.id, done.id)).toString(), 'before\n');
  });

  it('the retired path /exec is a 410 with a link to /execs', async () => {
    const { status, headers, body } = await call('POST', `/v1/machines/${machine.id}/exec`, { command: 'true' });
    assert.deepEqual([status, body.code], [410, 'endpoint_retired']);
    assert.match(headers.get('link') ?? '', new RegExp(`/v1/machines/${machine.id}/execs`));
  });
});
