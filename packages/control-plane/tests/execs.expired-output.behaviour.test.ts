// Tests jobs whose output the host has dropped: every way to read the output is refused with this reason, and the
// database learns of the drop even if some of the host's reports were lost.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host } = bed;
const { db } = bed.plane.app;
afterEach(() => host.heal());

const { json: machine } = await api('POST', '/v1/machines', { body: { memory_mb: 128 } });
const execs = `/v1/machines/${machine.id}/execs`;
const run = async (command = 'print hello'): Promise<string> => {
  const { status, json } = await api('POST', `${execs}?wait_ms=20000`, { body: { command } });
  assert.deepEqual([status, json.status, json.output_expired], [201, 'exited', false]);
  return json.id;
};
const isRecorded = async (id: string) =>
  (await db.selectFrom('execs').select('output_expired').where('id', '=', id).executeTakeFirstOrThrow()).output_expired;
const eventsOf = (id: string) => api('GET', `${execs}/${id}/output`, { headers: { accept: 'text/event-stream' } });
/** Asserts that every way to read the output is refused, and that every representation says why. */
async function assertExpired(id: string): Promise<void> {
  for (const query of ['', '?stream=stderr', '?offset=5', '?wait_ms=10000']) {
    const { status, json } = await api('GET', `${execs}/${id}/output${query}`);
    assert.deepEqual([status, json.code], [410, 'output_expired'], query);
  }
  const stream = await eventsOf(id);
  assert.deepEqual([stream.status, stream.json.code], [410, 'output_expired']);
  assert.equal(await isRecorded(id), true);
  const job: Exec = (await api('GET', `${execs}/${id}`)).json;
  assert.deepEqual([job.output_expired, job.status, job.stdout_bytes], [true, 'exited', 5]);
  assert.equal((await api('POST', `${execs}/${id}/cancel`)).json.output_expired, true);
  const { json } = await api<{ execs: Exec[] }>('GET', execs);
  assert.equal(json.execs.find((one) => one.id === id)?.output_expired, true);
}

describe('the output of a job that its host has dropped', () => {
  for (const forget of [false, true]) {
    const what = forget ? 'and forgot the job' : 'and kept the record';
    it(`the host dropped it ${what}: the reconciler learns of it without being told, and every read is a 410 (RES-1)`, async () => {
      const [dropped, kept] = [await run(), await run()];
      host.dropOutput(machine.id, dropped, { forget });
      await bed.settled(() => isRecorded(dropped));
      await assertExpired(dropped);
      assert.equal(await isRecorded(kept), false);
      assert.equal((await api('GET', `${execs}/${kept}/output`)).status, 200);
    });

    for (const route of ['page', 'events'] as const)
      it(`the host dropped it ${what}: a ${route} request that comes first is a 410 already (RES-1)`, async () => {
        const id = await run();
        host.fault('list', 'fail');
        host.dropOutput(machine.id, id, { forget });
        const first = route === 'events' ? await eventsOf(id) : await api('GET', `${execs}/${id}/output`);
        assert.deepEqual([first.status, first.json.code], [410, 'output_expired']);
        await assertExpired(id);
      });
  }

  it('a read that waits for more output when the output goes is a 410 (RES-1)', async () => {
    const { json } = await api('POST', execs, { body: { command: 'sleep' } });
    host.append(machine.id, json.id, Buffer.from('hello'));
    const before = host.callsOf('output');
    const waiting = api('GET', `${execs}/${json.id}/output?offset=5&wait_ms=20000`);
    await bed.settled(() => host.callsOf('output') > before);
    host.endJob(machine.id, json.id);
    host.dropOutput(machine.id, json.id);
    assert.equal((await waiting).status, 410);
    await assertExpired(json.id);
  });

  it('a start with wait_ms whose output went at once has no pages, and says so (RES-1)', async () => {
    host.fault('getJob', 'hang', 1);
    const starting = api('POST', `${execs}?wait_ms=20000`, { body: { command: 'sleep' } });
    await bed.settled(() => host.callsOf('getJob') > 0 && runningId() !== undefined);
    const id = runningId() ?? '';
    host.append(machine.id, id, Buffer.from('hello'));
    host.endJob(machine.id, id);
    host.dropOutput(machine.id, id);
    host.heal();
    const { status, json } = await starting;
    assert.deepEqual([status, json.status, json.output_expired, json.output], [201, 'exited', true, undefined]);
    await assertExpired(id);
  });

  it('a job that the host forgot on a machine that it lost is a 404: nothing was dropped for its limit (RES-1)', async () => {
    const { json: other } = await api('POST', '/v1/machines', { body: { memory_mb: 128 } });
    const path = `/v1/machines/${other.id}/execs`;
    const { json } = await api('POST', `${path}?wait_ms=20000`, { body: { command: 'print hello' } });
    host.machines.delete(other.id);
    assert.equal((await api('GET', `${path}/${json.id}/output`)).status, 404);
    assert.equal(await isRecorded(json.id), false);
  });

  it('a job that ends and starts while the kept jobs are asked for keeps its output (RES-1)', async () => {
    const old = await run();
    host.fault('keptOutput', 'answerLate', 1);
    const asked = host.callsOf('keptOutput');
    host.dropOutput(machine.id, old);
    await bed.settled(() => host.callsOf('keptOutput') > asked);
    const meanwhile = await run();
    host.heal();
    await bed.settled(() => isRecorded(old));
    assert.equal(await isRecorded(meanwhile), false);
  });
});

function runningId(): string | undefined {
  const jobs = [...(host.machines.get(machine.id)?.jobs ?? [])];
  return jobs.find(([, job]) => job.report.status === 'running')?.[0];
}
