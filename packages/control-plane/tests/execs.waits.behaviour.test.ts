// Tests of the requests that wait for one job: they share the calls to the host, and each keeps its own time limit.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Exec, ExecOutput, ExecStarted } from '@sandbar/contract/exec.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const WAITERS = 30;
const bed = await startTestBed();
const { api, host } = bed;
const { db } = bed.plane.app;
const machine: string = (await api('POST', '/v1/machines')).json.id;
const startJob = async (command: string): Promise<string> =>
  (await api<Exec>('POST', `/v1/machines/${machine}/execs`, { body: { command } })).json.id;
const all = <T>(ask: (index: number) => Promise<T>) => Array.from({ length: WAITERS }, (_, index) => ask(index));
/** Returns how often the host has been asked since `countCalls` was called. */
function countCalls(operation: 'getJob' | 'output') {
  const before = host.callsOf(operation);
  return () => host.callsOf(operation) - before;
}
const isWaitedFor = async (calls: () => number) => until(() => calls() > 0, 'the host is asked');

describe('requests that wait for the end of one job', () => {
  it('ask the host once, are all answered with its end, and it is recorded once (RES-10)', async () => {
    const id = await startJob('sleep');
    const calls = countCalls('getJob');
    const waiting = all(() => api<Exec>('GET', `/v1/machines/${machine}/execs/${id}?wait_ms=60000`));
    await isWaitedFor(calls);
    // When this later request is answered, the service has read the earlier ones too.
    await api('GET', `/v1/machines/${machine}`);
    host.endJob(machine, id, { exit_code: 7 });
    for (const { status, json } of await Promise.all(waiting)) {
      assert.deepEqual([status, json.status, json.exit_code], [200, 'exited', 7]);
      assert(json.finished_at);
    }
    assert(calls() < WAITERS / 2, `${WAITERS} requests asked the host ${calls()} times`);
    const entries = await db.selectFrom('activity').selectAll().where('action', '=', 'exec').execute();
    assert.equal(entries.filter(({ metadata }) => metadata.exit_code === 7).length, 1);
  });

  it('share it with the request that started the job and waits for its end (RES-10)', async () => {
    const id = '019b0000-0000-7000-8000-00000000aaaa';
    const body = { command: 'sleep', exec_id: id };
    const calls = countCalls('getJob');
    const starting = api<ExecStarted>('POST', `/v1/machines/${machine}/execs?wait_ms=60000`, { body });
    await isWaitedFor(calls);
    const waiting = api<Exec>('GET', `/v1/machines/${machine}/execs/${id}?wait_ms=1`);
    assert.equal((await waiting).json.status, 'running');
    assert.equal(calls(), 2, 'the short wait reads the state of its end');
    host.append(machine, id, Buffer.from('out'));
    host.endJob(machine, id);
    const { status, json } = await starting;
    assert.deepEqual([status, json.status, json.output?.stdout.total_bytes], [201, 'exited', 3]);
  });

  it('keep their own time limits, and see the bytes at their end (RES-10)', async () => {
    const id = await startJob('sleep');
    const calls = countCalls('getJob');
    const long = api<Exec>('GET', `/v1/machines/${machine}/execs/${id}?wait_ms=60000`);
    await isWaitedFor(calls);
    host.append(machine, id, Buffer.from('12345'));
    const short = await api<Exec>('GET', `/v1/machines/${machine}/execs/${id}?wait_ms=30`);
    assert.deepEqual([short.json.status, short.json.stdout_bytes], ['running', 5]);
    host.endJob(machine, id);
    assert.equal((await long).json.status, 'exited');
  });

  it('are all answered with what is known when the host goes away (RES-10)', async () => {
    const id = await startJob('sleep');
    host.fault('getJob', 'drop', 2);
    const waiting = all(() => api<Exec>('GET', `/v1/machines/${machine}/execs/${id}?wait_ms=60000`));
    await until(() => host.callsOf('getJob') > 0, 'the host is asked');
    const known = Promise.all(waiting);
    host.endJob(machine, id);
    host.heal();
    for (const { status } of await known) assert.equal(status, 200);
  });
});

describe('requests that wait for output of one job', () => {
  it('ask the host once, and all get the same page (RES-10)', async () => {
    const id = await startJob('sleep');
    const calls = countCalls('output');
    const path = `/v1/machines/${machine}/execs/${id}/output?wait_ms=60000`;
    const waiting = all(() => api<ExecOutput>('GET', path));
    await isWaitedFor(calls);
    await api('GET', `/v1/machines/${machine}`);
    host.append(machine, id, Buffer.from('new output'));
    for (const { status, json } of await Promise.all(waiting)) {
      assert.equal(status, 200);
      assert.equal(Buffer.from(json.data, 'base64').toString(), 'new output');
      assert.deepEqual([json.exec_id, json.offset, json.next_offset, json.eof], [id, 0, 10, false]);
    }
    assert(calls() < WAITERS / 2, `${WAITERS} requests asked the host ${calls()} times`);
    host.endJob(machine, id);
  });

  it('at different offsets, or of different streams, get each their own (RES-10)', async () => {
    const id = await startJob('print abcdef');
    const read = async (query: string) =>
      (await api<ExecOutput>('GET', `/v1/machines/${machine}/execs/${id}/output?wait_ms=60000&${query}`)).json;
    const [first, second, part, other] = await Promise.all([
      read('offset=0'),
      read('offset=2'),
      read('offset=2&limit=1'),
      read('stream=stderr'),
    ]);
    const text = ({ data }: ExecOutput) => Buffer.from(data, 'base64').toString();
    assert.deepEqual([text(first), text(second), text(part), text(other)], ['abcdef', 'cdef', 'c', '']);
    assert.deepEqual([part.next_offset, part.eof, other.stream], [3, false, 'stderr']);
  });
});
