// Tests creates whose host does not answer: another host is tried, and the machine exists once.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { HostUnavailable } from '../src/hosts/client.ts';
import { recountHost } from '../src/quotas/recount.ts';
import type { FakeHost } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { createMoveActs } from './support/moves.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs, refusalOf } from './support/volumes.ts';

const bed = await startTestBed({ remotes: [{}], timing: { doubtMs: 50 } });
const { api, host: local } = bed;
const [remote] = bed.remotes as [FakeHost];
const { db } = bed.plane.app;
const moves = createMoveActs(bed);
const acts = createVolumeActs(bed);
/** While true, the second replica cannot open connections to the remote host. */
let isCutOff = false;
const cut = await bed.addReplica({}, (_host, reached) => ({
  ...reached,
  ensureMachine: async (...args) => {
    if (isCutOff) throw new HostUnavailable(false);
    return reached.ensureMachine(...args);
  },
}));
const create = (options: Parameters<typeof api>[2] = {}) =>
  api('POST', '/v1/machines', { ...options, body: { memory_mb: 128, ...Object(options.body) } });
const rows = () => db.selectFrom('machines').select('id').where('state', '<>', 'destroyed').execute();

/** Makes the remote host the only one that is chosen first. */
const chooseRemoteFirst = () =>
  db.updateTable('hosts').set({ reserved_vcpus: 1000 }).where('id', '=', local.info.host_id);
const chooseAny = () => db.updateTable('hosts').set({ reserved_vcpus: 0 }).where('id', '=', local.info.host_id);

afterEach(async () => {
  isCutOff = false;
  remote.heal();
  await bed.settled(async () => (await api('GET', '/v1/machines?state=provisioning')).json.machines.length === 0);
  const { machines } = (await api('GET', '/v1/machines')).json;
  for (const { id } of machines) await api('DELETE', `/v1/machines/${id}`);
  await bed.settled(async () => (await rows()).length === 0);
  await checkAll(bed);
});

describe('a create whose host does not answer', () => {
  it('is tried on another host at once when the request was never sent, and nothing waits for the first', async () => {
    await chooseRemoteFirst().execute();
    cut.app.hostTable.expire();
    isCutOff = true;
    const before = remote.callsOf('delete');
    const creating = create({ plane: cut, headers: { 'idempotency-key': randomUUID() } });
    const made = await creating;
    await chooseAny().execute();
    await fixReservations();
    assert.equal(made.status, 201, made.text);
    assert(local.machines.has(made.json.id));
    assert.deepEqual(
      (await rows()).map(({ id }) => id),
      [made.json.id],
    );
    assert.equal(remote.callsOf('delete'), before, 'the host was not asked to remove what it never got');
  });

  it('is tried on another host when the first one leaves questions unanswered, and the rest is removed later', async () => {
    await chooseRemoteFirst().execute();
    bed.plane.app.hostTable.expire();
    remote.fault('ensure', 'hangAfter');
    remote.fault('info', 'drop');
    remote.fault('delete', 'drop');
    const headers = { 'idempotency-key': randomUUID() };
    const made = await create({ headers });
    await chooseAny().execute();
    await fixReservations();
    assert.equal(made.status, 201, made.text);
    assert(local.machines.has(made.json.id));
    const listed = (await api('GET', '/v1/machines')).json.machines;
    assert.deepEqual(
      listed.map(({ id }: { id: string }) => id),
      [made.json.id],
      'clients see one machine',
    );
    assert.equal((await create({ headers })).json.id, made.json.id);
    remote.heal();
    await bed.settled(() => remote.machines.size === 0);
    await bed.settled(async () => (await rows()).length === 1);
  });

  it('is 503 when its volumes are on that host', async () => {
    await moves.openOnly(remote);
    const volume = await acts.makeVolume();
    await moves.openOnly(local, remote);
    isCutOff = true;
    const refused = await create({ plane: cut, body: { volumes: [{ volume_id: volume }] } });
    assert.deepEqual(refusalOf(refused), [503, 'host_unavailable']);
    assert.equal((await api('GET', `/v1/volumes/${volume}`)).json.state, 'available');
    assert.equal((await api('DELETE', `/v1/volumes/${volume}`)).status, 204);
  });
});

/** Counts the reservations anew that `chooseRemoteFirst` has made up. */
async function fixReservations(): Promise<void> {
  await recountHost(bed.plane.app, local.info.host_id);
  for (const replica of bed.replicas) replica.app.hostTable.expire();
}
