// Tests of requests that wait in vain: the operation does not end, the service shuts down, or a machine takes too long
// to start. Uses its own test beds with short time limits.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

const bed = await startTestBed({
  timing: { operationWaitMs: 1_500, runningWaitMs: 300, retryMs: { first: 50, longest: 50 } },
});
const patient = await startTestBed({ timing: { runningWaitMs: 300 } });
afterEach(() => {
  bed.host.heal();
  patient.host.heal();
});

type Bed = typeof bed;
const makeMachine = async ({ api }: Bed): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128 } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const unfinished = ({ plane }: Bed) =>
  plane.app.db.selectFrom('operations').selectAll().where('finished_at', 'is', null).execute();
/** Waits until exactly one operation is unfinished, and returns its id. */
async function underWay(of: Bed): Promise<string> {
  await until(async () => (await unfinished(of)).length === 1, 'something is under way', 60_000);
  return (await unfinished(of))[0]?.id ?? '';
}
const settled = (of: Bed) => until(async () => (await unfinished(of)).length === 0, 'nothing is under way', 60_000);

describe('a request that waits in vain', () => {
  it('for another operation is a 409 that names it', async () => {
    const machine = await makeMachine(bed);
    bed.host.fault('ensure', 'hang', 1);
    const first = bed.api('POST', `/v1/machines/${machine}/stop`);
    await underWay(bed);
    const answer = await bed.api('POST', `/v1/machines/${machine}/start`);
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.match(answer.json.detail, /\bstop\b/);
    assert(answer.headers.get('retry-after'));
    bed.host.release();
    assert.equal((await first).status, 200);
    await checkAll(bed);
  });

  it('for the same operation gets what its next attempt fails with', async () => {
    const machine = await makeMachine(bed);
    bed.host.fault('ensure', 'fail');
    assert.equal((await bed.api('POST', `/v1/machines/${machine}/stop`)).status, 500);
    const answer = await bed.api('POST', `/v1/machines/${machine}/stop`);
    assert.equal(answer.status, 500, answer.text);
    assert.match(answer.json.detail, /The fake host was told to fail\./);
    bed.host.heal();
    await settled(bed);
    await checkAll(bed);
  });

  it('for a volume is a 409 that names what is done to it', async () => {
    const machine = await makeMachine(bed);
    const volume = (await bed.api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    bed.host.fault('ensure', 'hang', 1);
    const first = bed.api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: machine } });
    await underWay(bed);
    const answer = await bed.api('DELETE', `/v1/volumes/${volume}`);
    assert.equal(answer.status, 409, answer.text);
    assert.match(answer.json.detail, /\battach\b/);
    bed.host.release();
    assert.equal((await first).status, 200);
  });
});

describe('a machine that is on its way to running', () => {
  const ASKED: [string, (machine: string) => Promise<Answer>][] = [
    ['an exec', (machine) => patient.api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'true' } })],
    ['a snapshot', (machine) => patient.api('POST', `/v1/machines/${machine}/snapshots`)],
  ];
  for (const [what, ask] of ASKED) {
    it(`is waited for by ${what} no longer than runningWaitMs, and then it is a 409 that names the start`, async () => {
      const machine = await makeMachine(patient);
      assert.equal((await patient.api('POST', `/v1/machines/${machine}/stop`)).status, 200);
      patient.host.fault('ensure', 'hang', 1);
      const first = patient.api('POST', `/v1/machines/${machine}/start`);
      const operation = await underWay(patient);
      let answer: Answer | undefined;
      void ask(machine).then((told) => {
        answer = told;
      });
      // A waiting request reads the row at most once in 250 ms, so 40 reads take far longer than this request may wait
      // (300 ms).
      await Promise.race([
        somebodyWaitsFor(operation, 40).catch(() => undefined),
        until(() => answer !== undefined, 'it is answered', 60_000),
      ]);
      patient.host.release();
      assert.equal((await first).status, 200);
      await until(() => answer !== undefined, 'it is answered', 60_000);
      assert.equal(answer?.status, 409, answer?.text);
      assert.match(String(answer?.json.detail), /\bstart\b/);
      await settled(patient);
      await checkAll(patient);
    });
  }
});

describe('a service that shuts down', () => {
  it('answers 503 with Retry-After to everybody who waits, never 409', async () => {
    const machine = await makeMachine(patient);
    const plane = await patient.addReplica();
    patient.replicas.splice(patient.replicas.indexOf(plane), 1);
    patient.host.fault('ensure', 'hang', 1);
    const first = patient.api('POST', `/v1/machines/${machine}/stop`);
    const operation = await underWay(patient);
    const asked = [
      patient.api('POST', `/v1/machines/${machine}/stop`, { plane }),
      patient.api('POST', `/v1/machines/${machine}/start`, { plane }),
      patient.api('POST', `/v1/machines/${machine}/snapshots`, { plane }),
    ];
    await somebodyWaitsFor(operation, 12);
    await plane.close();
    for (const answer of await Promise.all(asked)) {
      assert.deepEqual([answer.status, answer.json.code], [503, 'shutting_down'], answer.text);
      assert(Number(answer.headers.get('retry-after')) > 0);
    }
    patient.host.release();
    assert.equal((await first).status, 200);
    await checkAll(patient);
  });
});
