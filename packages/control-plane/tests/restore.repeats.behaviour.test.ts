// Tests a restore that the host has carried out and that fails afterwards, while the service asks which jobs ended. The
// old disk is gone, so the restore must be recorded in the end, and must not count as refused.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { checkAll } from './support/in-order.ts';
import { createScenes } from './support/scenes.ts';
import { startTestBed } from './support/test-bed.ts';

// A failed attempt is repeated only when a request asks for it.
const bed = await startTestBed({ timing: { retryMs: { first: 1_000_000, longest: 1_000_000 } } });
const { api, host } = bed;
const { makeMachine, makeSnapshot, unfinished, actionsOf } = createScenes(bed);

it('a restore that fails after the host has done it is repeated and recorded once', async () => {
  const machine = await makeMachine();
  const snapshot = await makeSnapshot(machine);
  const job = (await api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } })).json.id;
  host.fault('listJobs', 'fail');
  const first = await api('POST', `/v1/snapshots/${snapshot}/restore`);
  assert.deepEqual([first.status, first.json.code], [500, 'internal_error'], first.text);
  assert.equal(host.machines.get(machine)?.restores.length, 1);
  const [left] = await unfinished();
  assert.deepEqual([left?.kind, left?.undoing], ['restore', false]);
  host.heal();
  assert.equal((await api('POST', `/v1/snapshots/${snapshot}/restore`)).status, 200);
  assert.equal(host.machines.get(machine)?.restores.length, 1, 'the disk was reset once');
  assert.equal((await actionsOf(machine)).filter((action) => action === 'snapshot.restored').length, 1);
  assert.equal((await api('GET', `/v1/machines/${machine}/execs/${job}`)).json.status, 'lost');
  await checkAll(bed);
});
