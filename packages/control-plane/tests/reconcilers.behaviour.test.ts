// Tests that the reconciler's tasks do not wait for each other, and that the failure of one machine does not hold up
// the others.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { checkAll } from './support/in-order.ts';
import { leaveOperation } from './support/operations.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host } = bed;
const { db } = bed.plane.app;
const stateOf = async (id: string) =>
  (await db.selectFrom('machines').select('state').where('id', '=', id).executeTakeFirst())?.state;

it('a host call that hangs keeps no other machine from its end (CTL-3)', async () => {
  const [hanging, dying] = [(await api('POST', '/v1/machines')).json.id, (await api('POST', '/v1/machines')).json.id];
  const before = host.calls.length;
  host.fault('ensure', 'hang');
  await leaveOperation(db, hanging, { kind: 'stop' });
  await bed.settled(() => host.calls.slice(before).some(({ operation }) => operation === 'ensure'));
  const stray = uuidv7();
  host.plant(stray);
  host.isMute = true;
  host.end(dying, 'failed', 'It died.');
  await bed.settled(async () => (await stateOf(dying)) === 'error' && !host.machines.has(stray));
  assert.equal(await stateOf(hanging), 'running', 'the call hangs still');
  host.heal();
  await bed.settled(async () => (await stateOf(hanging)) === 'stopped');
  await checkAll(bed);
});

it('a machine that its host always refuses keeps no other machine from its end (CTL-3)', async () => {
  const lost = (await api('POST', '/v1/machines')).json.id;
  const [refused, stray] = [uuidv7(), uuidv7()];
  host.refused.add(refused);
  host.plant(refused);
  const isRefused = () => host.calls.some((call) => call.operation === 'delete' && call.machineId === refused);
  await bed.settled(isRefused);
  // From now on one machine fails in every pass of the reconciler.
  host.plant(stray);
  host.machines.delete(lost);
  await bed.settled(async () => !host.machines.has(stray) && (await stateOf(lost)) === 'error');
  assert(host.machines.has(refused));
  host.heal();
  await bed.settled(() => !host.machines.has(refused));
  await checkAll(bed);
});
