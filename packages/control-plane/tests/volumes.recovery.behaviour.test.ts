// Tests of volumes while hosts fail, hang, lose disks or have disks that no row names: the reconciler brings everything
// to an end, and the audit reports what it cannot repair.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import type { Audit, AuditFix } from '@sandbar/contract/admin.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { callAdmin } from './support/admin.ts';
import type { Fault } from './support/fake-host/calls.ts';
import { checkAll } from './support/in-order.ts';
import { isBusy } from './support/operations.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';
import { createVolumeActs, refusalOf, VOLUME_GB } from './support/volumes.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { ensureMs: 800, claimTtlMs: 1_000, claimRenewMs: 200, reconcileMs: 50 },
});
const { api, host, accountId } = bed;
const { db } = bed.plane.app;
const { makeMachine, makeStopped, makeVolume, attach, detach, attached, entriesOf, onHost } = createVolumeActs(bed);
const shown = async (id: string) => (await api('GET', `/v1/volumes/${id}`)).json;
const stateOf = async (id: string) => (await api('GET', `/v1/machines/${id}`)).json.state;
const countVolumes = async () => (await db.selectFrom('volumes').select('id').execute()).length;
const isStill = async (id: string) => !(await isBusy(db, id));
/**
 * Takes away the claim of a volume's operation, as if its process had stalled: another process may then take it over.
 */
const takeClaimAway = (id: string) =>
  sql`update operations set claim_token = gen_random_uuid(), claim_expires_at = now() - interval '1 second'
    where volume_id = ${id} and finished_at is null`.execute(db);

afterEach(() => {
  host.heal();
  host.isMute = false;
});

/** Faults after which the service does not know whether the host acted. */
const SILENCES: [string, Fault][] = [
  ['drops before it acts', 'drop'],
  ['acts and drops', 'dropAfter'],
  ['hangs before it acts', 'hang'],
  ['acts and hangs', 'hangAfter'],
];
const FAILURES: [string, Fault, number][] = [
  ['fails once', 'fail', 1],
  ['fails twice', 'fail', 2],
  ['fails until it is mended', 'fail', Number.POSITIVE_INFINITY],
  ['acts and fails, once', 'failAfter', 1],
  ['acts and fails, twice', 'failAfter', 2],
  ['acts and fails, until it is mended', 'failAfter', Number.POSITIVE_INFINITY],
];

describe('an attach or detach whose host (CTL-2)', () => {
  for (const make of [makeMachine, makeStopped]) {
    const kind = make === makeMachine ? 'running' : 'stopped';
    for (const [name, fault] of SILENCES) {
      it(`${name} is a 503 that is finished once it answers (${kind})`, async () => {
        const machineId = await make();
        const id = await makeVolume();
        for (const [act, end, path] of [
          [() => attach(id, machineId, '/data'), 'attached', { [id]: '/data' }],
          [() => detach(id), 'available', {}],
        ] as const) {
          const from = host.changeCount;
          host.fault('ensure', fault);
          assert.deepEqual(refusalOf(await act()), [503, 'host_unavailable']);
          host.heal();
          await bed.settled(() => isStill(id));
          assert.deepEqual([(await shown(id)).state, onHost(machineId)], [end, path]);
          await checkAll(bed);
          // Repeat the calls to the host, as if copies of them arrived late.
          host.repeatChanges(from);
          host.repeatChanges(from);
          await checkAll(bed);
        }
        assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached', 'volume.detached']);
      });
    }
    for (const [name, fault, times] of FAILURES) {
      it(`${name} is as before in the end (${kind})`, async () => {
        const machineId = await make();
        const id = await makeVolume();
        const refused = async (act: () => Promise<{ status: number }>, state: string, paths: object) => {
          host.fault('ensure', fault, times);
          assert.equal((await act()).status, 500);
          host.heal();
          await bed.settled(() => isStill(id));
          assert.deepEqual([(await shown(id)).state, onHost(machineId)], [state, paths]);
          await checkAll(bed);
        };
        await refused(() => attach(id, machineId, '/data'), 'available', {});
        assert.equal((await attach(id, machineId, '/data')).status, 200);
        await refused(() => detach(id), 'attached', { [id]: '/data' });
        assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
      });
    }
  }

  it('is away is a 503 that is finished once it is there again', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    const other = await makeMachine();
    const has = await attached(other);
    await host.away();
    for (const act of [() => attach(id, machineId, '/data'), () => detach(has)]) {
      const answer = await act();
      assert.deepEqual(refusalOf(answer), [503, 'host_unavailable']);
      assert(answer.headers.get('retry-after'));
    }
    assert.deepEqual([(await shown(id)).state, (await shown(has)).state], ['available', 'attached']);
    await host.listen();
    await bed.settled(async () => (await isStill(id)) && (await isStill(has)));
    assert.deepEqual([(await shown(id)).state, onHost(machineId)], ['attached', { [id]: '/data' }]);
    assert.deepEqual([(await shown(has)).state, onHost(other)], ['available', {}]);
    await checkAll(bed);
  });

  it('gave no answer is answered by a retry with what became of it', async () => {
    const [machineId, id] = [await makeMachine(), await makeVolume()];
    await bed.plane.reconciler.runOnce();
    host.fault('ensure', 'dropAfter');
    assert.equal((await attach(id, machineId)).status, 503);
    host.heal();
    const again = await attach(id, machineId);
    assert.deepEqual([again.status, again.json.state], [200, 'attached'], again.text);
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
    host.fault('ensure', 'dropAfter');
    assert.equal((await detach(id)).status, 503);
    host.heal();
    assert([200, 409].includes((await detach(id)).status));
    await bed.settled(() => isStill(id));
    assert.deepEqual((await entriesOf(id)).slice(2), ['volume.detached']);
    await checkAll(bed);
  });

  it('stalled until another finished it changes nothing with its late call', async () => {
    const [machineId, id] = [await makeMachine(), await makeVolume()];
    host.fault('ensure', 'hang', 1);
    const attaching = attach(id, machineId);
    await bed.settled(() => isBusy(db, id));
    await takeClaimAway(id);
    await bed.settled(async () => (await shown(id)).state === 'attached');
    assert.equal((await detach(id)).status, 200);
    host.heal();
    // Another process finished the attach, and the volume was detached since. The answer shows its present state.
    const { status, json } = await attaching;
    assert.deepEqual([status, json.state], [200, 'available']);
    assert.deepEqual([(await shown(id)).state, onHost(machineId)], ['available', {}]);
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached', 'volume.detached']);
    await checkAll(bed);
  });
});

describe('an attach that lost its claim (CTL-2)', () => {
  it('answers with what another made of it, and changes nothing that others do by then', async () => {
    const [machineId, id] = [await makeMachine(), await makeVolume()];
    host.fault('ensure', 'answerLate', 1);
    const attaching = attach(id, machineId);
    await bed.settled(() => id in onHost(machineId));
    await takeClaimAway(id);
    await bed.settled(async () => (await shown(id)).state === 'attached');
    host.fault('ensure', 'drop');
    assert.equal((await detach(id)).status, 503);
    host.release();
    const { status, json } = await attaching;
    assert.deepEqual([status, json.state], [200, 'attached']);
    assert(await isBusy(db, id), 'the detach is under way still');
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
    host.heal();
    await bed.settled(() => isStill(id));
    assert.deepEqual(onHost(machineId), {});
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached', 'volume.detached']);
    await checkAll(bed);
  });
});

describe('a create whose host (CTL-2)', () => {
  const faults: [string, Fault, number][] = [
    ['drops before it acts', 'drop', 503],
    ['acts and drops', 'dropAfter', 503],
    ['acts and drops late', 'hangAfter', 503],
    ['fails', 'fail', 500],
    ['acts and fails', 'failAfter', 500],
    ['fails late', 'hangThenFail', 500],
  ];
  for (const [name, fault, status] of faults) {
    it(`${name} leaves nothing in the end`, async () => {
      const [volumes, disks, from] = [await countVolumes(), host.volumes.size, host.changeCount];
      host.fault('ensureVolume', fault);
      const asking = api('POST', '/v1/volumes', { body: { size_gb: VOLUME_GB } });
      if (fault === 'hangAfter' || fault === 'hangThenFail') {
        await bed.settled(() => host.changeCount > from);
        // The client retries after a broken connection, so make the retry fail too.
        host.fault('ensureVolume', 'drop');
        host.release();
      }
      assert.equal((await asking).status, status);
      host.heal();
      await bed.settled(async () => (await countVolumes()) === volumes);
      await checkAll(bed);
      // Repeat the call, as if a copy arrived late. It makes a disk that no row names, and the reconciler must remove
      // that disk.
      host.repeatChanges(from);
      await bed.settled(() => host.volumes.size === disks);
      await checkAll(bed);
    });
  }

  it('makes it, but refuses the undo: nothing is left in the end', async () => {
    const [volumes, disks] = [await countVolumes(), host.volumes.size];
    host.fault('ensureVolume', 'failAfter');
    host.fault('deleteVolume', 'fail');
    assert.equal((await api('POST', '/v1/volumes', { body: { size_gb: VOLUME_GB } })).status, 500);
    assert.equal(await countVolumes(), volumes + 1, 'it counts while its disk is there');
    await checkBooks(bed);
    host.heal();
    await bed.settled(async () => (await countVolumes()) === volumes);
    assert.equal(host.volumes.size, disks);
    await checkAll(bed);
  });
});

describe('a disk that its host has lost', () => {
  it('makes an attached volume an error with its reason, and attached again when it is back', async () => {
    const machineId = await makeMachine();
    const id = await attached(machineId, '/data');
    const disk = host.volumes.get(id);
    assert(disk);
    host.volumes.delete(id);
    await bed.settled(async () => (await shown(id)).state === 'error');
    const { error, machine_id, mount_path } = await shown(id);
    assert.match(error, /lost/);
    assert.deepEqual([machine_id, mount_path], [machineId, '/data']);
    await checkAll(bed);
    host.volumes.set(id, disk);
    await bed.settled(async () => (await shown(id)).state === 'attached');
    assert.equal((await shown(id)).error, null);
    await checkAll(bed);
  });

  it('keeps its machine from a start, by the words of the host, until it is detached', async () => {
    const machineId = await makeStopped();
    const id = await attached(machineId, '/data');
    host.volumes.delete(id);
    await bed.settled(async () => (await shown(id)).state === 'error');
    const start = await api('POST', `/v1/machines/${machineId}/start`);
    assert.match(start.json.detail, new RegExp(`disk of volume ${id} is not there`));
    assert.equal(await stateOf(machineId), 'stopped');
    const answer = await detach(id);
    assert.deepEqual([answer.status, answer.json.state, answer.json.machine_id], [200, 'error', null]);
    assert.equal((await api('POST', `/v1/machines/${machineId}/start`)).status, 200);
    await checkAll(bed);
  });
});

describe('a disk that no row refers to', () => {
  it('is removed by itself when this database gave its id away; one of another database stays', async () => {
    const [ours, old, foreign] = [uuidv7(), uuidv7({ msecs: Date.parse('2024-01-01') }), randomUUID()];
    for (const id of [ours, old, foreign]) host.volumes.set(id, { volume_id: id, size_gb: 5, kind: 'data' });
    await bed.settled(() => !host.volumes.has(ours));
    await bed.plane.reconciler.runOnce();
    for (const id of [old, foreign]) assert(host.volumes.delete(id), 'it is still there');
  });

  it('is never that of a volume that comes or goes meanwhile, nor of a disk that is being kept', async () => {
    let isGoing = true;
    const churn = async (): Promise<void> => {
      while (isGoing) {
        const [id, machineId] = [await makeVolume(), await makeMachine()];
        assert.equal((await attach(id, machineId)).status, 200);
        const kept = (await api('DELETE', `/v1/machines/${machineId}?preserve_storage=true`)).json.root_volume_id;
        for (const volumeId of [id, kept]) {
          assert(host.volumes.has(volumeId));
          assert.equal((await shown(volumeId)).state, 'available');
          assert.equal((await api('DELETE', `/v1/volumes/${volumeId}`)).status, 204);
        }
      }
    };
    const churning = Promise.all([churn(), churn()]);
    for (let round = 0; round < 20; round++) await bed.plane.reconciler.runOnce();
    isGoing = false;
    await churning;
    await checkAll(bed);
  });
});

describe('the audit', () => {
  const look = async () => (await callAdmin<Audit>(bed.plane.app.config.adminSocket, '/admin/audit')).json;
  const fix = async () => (await callAdmin<AuditFix>(bed.plane.app.config.adminSocket, '/admin/audit/fix', {})).json;

  it('calls a change under way no finding; it names one that fails again and again, and tries it at once', async () => {
    const [machineId, id] = [await makeMachine(), await makeVolume()];
    host.fault('ensure', 'hang', 1);
    host.fault('ensureVolume', 'hang', 1);
    const underWay = [attach(id, machineId), api('POST', '/v1/volumes', { body: { size_gb: 5 } })];
    const operations = () => db.selectFrom('operations').selectAll().where('finished_at', 'is', null).execute();
    await bed.settled(async () => (await operations()).length === 2);
    assert.deepEqual((await look()).findings, []);
    host.heal();
    assert.deepEqual(
      (await Promise.all(underWay)).map(({ status }) => status),
      [200, 201],
    );
    host.fault('ensure', 'drop');
    assert.equal((await detach(id)).status, 503);
    await bed.settled(async () => ((await operations())[0]?.attempts ?? 0) > 6);
    const { findings } = await look();
    assert.deepEqual(
      findings.map(({ area, subject, fix }) => [area, subject, fix]),
      [['operation', machineId, 'try it now']],
    );
    assert.match(findings[0]?.detail ?? '', /^Its detach failed \d+ times. The last error: .* host does not answer/);
    assert.equal((await shown(id)).state, 'attached');
    host.heal();
    await fix();
    await bed.settled(() => isStill(id));
    assert.equal((await shown(id)).state, 'available');
    await checkAll(bed);
  });

  it('counts volumes anew, attached or not, with those that are being made', async () => {
    const machineId = await makeMachine();
    await attached(machineId);
    await makeVolume();
    await sql`update accounts set used_volumes = used_volumes + 3, used_storage_gb = used_storage_gb - 1
      where id = ${accountId}`.execute(db);
    const { findings } = await look();
    assert.deepEqual(
      findings.map(({ area, subject }) => [area, subject]),
      [['quota', accountId]],
    );
    assert.match(findings[0]?.detail ?? '', /storage_gb \d+ instead of \d+, volumes \d+ instead of \d+/);
    assert.equal((await fix()).fixed.length, 1);
    await checkAll(bed);
  });
});
