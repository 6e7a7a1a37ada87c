// Tests of the audit behind `sandbar doctor`: it reports every lasting difference between hosts, rows and counters,
// ignores operations that are under way, repairs what the service owns, and never touches what an account owns.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { createAuditActs } from './support/audit.ts';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { leaveOperation } from './support/operations.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ host: { subnet: '10.83.0.0/16' } });
const { api, host, plane, accountId } = bed;
const { db } = plane.app;
// A running reconciler would repair most differences before the audit sees them.
await plane.reconciler.stop();

const { look, fix, expectOne, expectMended } = createAuditActs(bed);
const create = async (): Promise<string> => {
  const answer = await api('POST', '/v1/machines');
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const keepDisk = async (): Promise<string> => {
  const answer = await api('DELETE', `/v1/machines/${await create()}?preserve_storage=true`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json.root_volume_id;
};
const takeSnapshot = async (machineId: string): Promise<string> => {
  const answer = await api('POST', `/v1/machines/${machineId}/snapshots`);
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const machineRow = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();

afterEach(async () => {
  host.heal();
  host.findings = [];
});

describe('audit', () => {
  it('finds nothing in a service that is in order, and says how much it looked at', async () => {
    await takeSnapshot(await create());
    await keepDisk();
    const { findings, not_looked_at, looked_at } = await look();
    assert.deepEqual([findings, not_looked_at], [[], []]);
    assert.deepEqual(looked_at, { hosts: 1, machines: 1, volumes: 1, snapshots: 1, accounts: 2 });
  });

  it('is for the operator: the public API has no such route', async () => {
    assert.equal((await api('GET', '/admin/audit')).status, 404);
  });

  it('a machine that no account has is removed from its host', async () => {
    const id = uuidv7();
    host.plant(id);
    assert.match((await expectOne('machine', id, /no account does/)) ?? '', /remove it/);
    assert(host.machines.has(id), 'looking changes nothing');
    await expectMended('machine', id);
    assert(!host.machines.has(id));
  });

  it('a machine whose row is destroyed is removed from its host', async () => {
    const id = await create();
    const left = host.machines.get(id);
    assert(left);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    host.machines.set(id, left);
    await expectOne('machine', id, /though it is destroyed/);
    await expectMended('machine', id);
    assert(!host.machines.has(id));
  });

  it('what another database gave away is told, and left alone', async () => {
    const ids = [randomUUID(), uuidv7({ msecs: Date.parse('2024-01-01') })];
    for (const id of ids) {
      host.plant(id);
      host.plantVolume(id, 3);
    }
    const { findings, fixed } = await fix();
    assert.deepEqual(fixed, []);
    assert.deepEqual(
      findings.map((finding) => [finding.area, finding.subject, finding.fix]).sort(),
      ids.flatMap((id) => [['machine', id, null] as const, ['volume', id, null] as const]).sort(),
    );
    for (const id of ids) assert(host.machines.delete(id) && host.volumes.delete(id), 'it is still there');
  });

  it('a machine that its host does not have is marked as lost, with its reason, and its jobs too', async () => {
    const id = await create();
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    host.machines.delete(id);
    await expectOne('machine', id, /is running, and its host does not have it/);
    await expectMended('machine', id);
    const row = await machineRow(id);
    assert.equal(row?.state, 'error');
    assert.match(row?.error ?? '', /lost/);
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'lost');
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
  });

  it('a machine that ended unseen is recorded as ended', async () => {
    const id = await create();
    host.isMute = true;
    host.end(id, 'failed', 'It died.');
    host.isMute = false;
    await expectOne('machine', id, /running, and failed on its host/);
    await expectMended('machine', id);
    assert.deepEqual([(await machineRow(id))?.state, (await machineRow(id))?.error], ['error', 'It died.']);
  });

  it('a stopped machine that runs on its host is stopped there, and so is one in error', async () => {
    for (const state of ['stopped', 'error'] as const) {
      const id = await create();
      const machine = host.machines.get(id);
      assert(machine);
      if (state === 'stopped') await api('POST', `/v1/machines/${id}/stop`);
      else {
        host.end(id, 'failed', 'It died.');
        await bed.settled(async () => (await machineRow(id))?.state === 'error');
      }
      machine.report = { ...machine.report, status: 'running', generation: (await machineRow(id))?.generation ?? 0 };
      host.machines.set(id, machine);
      await expectOne('machine', id, /runs on its host|running on its host/);
      await expectMended('machine', id);
      assert.equal(host.machines.get(id)?.report.status, 'stopped');
      assert.equal((await machineRow(id))?.state, state);
    }
  });

  it('a row that is older than what its host knows is told, and left alone', async () => {
    const id = await create();
    const machine = host.machines.get(id);
    assert(machine);
    machine.report = { ...machine.report, generation: 9 };
    assert.equal(await expectOne('machine', id, /old copy/), null);
    machine.report = { ...machine.report, generation: 1 };
  });

  it('an operation that fails again and again is told with its last error, and is tried at once when asked', async () => {
    const id = await create();
    await leaveOperation(db, id, { kind: 'stop', isClaimed: true });
    const left = db.updateTable('operations').where('machine_id', '=', id).where('finished_at', 'is', null);
    await left.set({ attempts: 6, last_error: 'The host says no.' }).execute();
    await expectOne('operation', id, /Its stop failed 6 times. The last error: The host says no/);
    await left.set({ claim_token: null, run_at: new Date(Date.now() + 3_600_000) }).execute();
    await expectMended('operation', id);
    assert.equal((await machineRow(id))?.state, 'stopped');
  });

  it('an operation under way is no finding: a create, a stop, a delete, a delete that keeps the disk', async () => {
    const [toStop, toDelete, toKeep] = [await create(), await create(), await create()];
    host.fault('ensure', 'hangAfter');
    host.fault('delete', 'hangAfter');
    const before = host.calls.length;
    const under_way = [
      api('POST', '/v1/machines'),
      api('POST', `/v1/machines/${toStop}/stop`),
      api('DELETE', `/v1/machines/${toDelete}`),
      api('DELETE', `/v1/machines/${toKeep}?preserve_storage=true`),
    ];
    const asked = () => host.calls.slice(before).filter(({ operation }) => ['ensure', 'delete'].includes(operation));
    await bed.settled(() => asked().length === 4);
    assert.deepEqual((await look()).findings, []);
    assert.deepEqual((await fix()).fixed, []);
    host.heal();
    await Promise.all(under_way);
    // The host acted on each call, but its answers were lost, so each operation was abandoned half-way. After the fix
    // nothing may be wrong.
    assert.deepEqual((await fix()).findings, []);
    await checkBooks(bed);
  });

  it('machines that come and go while it looks are no finding', async () => {
    let isLooking = true;
    const churn = async () => {
      while (isLooking) {
        const id = await create();
        await api('POST', `/v1/machines/${id}/stop`);
        await api('DELETE', `/v1/machines/${id}`);
      }
    };
    const churning = Promise.all([churn(), churn(), churn()]);
    try {
      for (let round = 0; round < 10; round++) assert.deepEqual((await look()).findings, []);
    } finally {
      isLooking = false;
    }
    await churning;
  });

  it('what began or ended between its look at the host and its look at the rows is no finding', async () => {
    const [toDelete, toKeep] = [await create(), await create()];
    host.fault('audit', 'answerLate', 1);
    const before = host.callsOf('audit');
    const looking = look();
    await bed.settled(() => host.callsOf('audit') > before);
    await create();
    await api('DELETE', `/v1/machines/${toDelete}`);
    await api('DELETE', `/v1/machines/${toKeep}?preserve_storage=true`);
    host.release();
    assert.deepEqual((await looking).findings, []);
  });

  it('a kept disk that is lost becomes an error with a reason, and is available again when it is back', async () => {
    const id = await keepDisk();
    const disk = host.volumes.get(id);
    assert(disk);
    host.volumes.delete(id);
    await expectOne('volume', id, /is available, and its host does not have its disk/);
    await expectMended('volume', id);
    const lost = (await api('GET', `/v1/volumes/${id}`)).json;
    assert.equal(lost.state, 'error');
    assert.match(lost.error, /lost/);
    host.volumes.set(id, disk);
    await expectOne('volume', id, /has its disk again/);
    await expectMended('volume', id);
    const found = (await api('GET', `/v1/volumes/${id}`)).json;
    assert.deepEqual([found.state, found.error], ['available', null]);
    assert.deepEqual((await look()).findings, []);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
  });

  it('a disk that no account has is removed, one that an account has never is', async () => {
    const [mine, stray] = [await keepDisk(), uuidv7()];
    host.plantVolume(stray, 5);
    assert.match((await expectOne('volume', stray, /5 GB.*no account does/)) ?? '', /remove the disk/);
    await expectMended('volume', stray);
    assert.deepEqual([host.volumes.has(stray), host.volumes.has(mine)], [false, true]);
  });

  it('a disk that is not what its row says is told, and left alone', async () => {
    const id = await keepDisk();
    const disk = host.volumes.get(id);
    assert(disk);
    host.volumes.set(id, { ...disk, size_gb: 99 });
    assert.equal(await expectOne('volume', id, /of 10 GB, and a root disk of 99 GB/), null);
    host.volumes.set(id, disk);
  });

  it('a snapshot that is lost becomes an error with a reason, and is ready again when it is back', async () => {
    const id = await takeSnapshot(await create());
    const snapshot = host.snapshots.get(id);
    assert(snapshot);
    host.snapshots.delete(id);
    await expectOne('snapshot', id, /is ready, and its host does not have it/);
    await expectMended('snapshot', id);
    const lost = (await api('GET', `/v1/snapshots/${id}`)).json;
    assert.equal(lost.state, 'error');
    assert.match(lost.error, /lost/);
    host.snapshots.set(id, snapshot);
    await expectOne('snapshot', id, /has it again/);
    await expectMended('snapshot', id);
    assert.equal((await api('GET', `/v1/snapshots/${id}`)).json.state, 'ready');
    host.snapshots.set(id, { ...snapshot, size_gb: 99 });
    assert.equal(await expectOne('snapshot', id, /of 10 GB, and a disk snapshot of 99 GB/), null);
    host.snapshots.set(id, snapshot);
  });

  it('a snapshot that no account has is removed; one of another database is told, and left alone', async () => {
    const mine = await takeSnapshot(await create());
    const about = { machine_id: randomUUID(), kind: 'disk', size_gb: 10, stored_bytes: 1 } as const;
    const [stray, foreign] = [uuidv7(), uuidv7({ msecs: Date.UTC(2020, 0, 1) })];
    host.snapshots.set(stray, { snapshot_id: stray, ...about });
    assert.match((await expectOne('snapshot', stray, /no account does/)) ?? '', /remove it/);
    await expectMended('snapshot', stray);
    assert.deepEqual([host.snapshots.has(stray), host.snapshots.has(mine)], [false, true]);
    host.snapshots.set(foreign, { snapshot_id: foreign, ...about });
    assert.equal(await expectOne('snapshot', foreign, /never gave its id away/), null);
    host.snapshots.delete(foreign);
  });

  it('a snapshot under way is no finding', async () => {
    const machine = await create();
    const id = await takeSnapshot(machine);
    host.fault('takeSnapshot', 'hang', 1);
    const taking = api('POST', `/v1/machines/${machine}/snapshots`);
    await bed.settled(() => host.callsOf('takeSnapshot') > 0);
    await bed.settled(async () => (await db.selectFrom('snapshots').select('id').execute()).length > 1);
    assert.deepEqual((await look()).findings, []);
    host.heal();
    assert.equal((await taking).status, 201);
    assert((await look()).findings.length === 0 && host.snapshots.has(id));
  });

  it('counters that are off are counted anew', async () => {
    await create();
    await sql`update accounts set used_machines = used_machines + 2, used_storage_gb = 1 where id = ${accountId}`.execute(
      db,
    );
    await expectOne('quota', accountId, /machines \d+ instead of \d+, storage_gb 1 instead of \d+/);
    await expectMended('quota', accountId);
    await sql`update hosts set reserved_memory_mb = reserved_memory_mb + 5`.execute(db);
    await expectOne('reservation', FAKE_HOST_ID, /promised memory_mb \d+ instead of \d+, which .* add up to/);
    await expectMended('reservation', FAKE_HOST_ID);
    await sql`update hosts set reserved_vcpus = reserved_vcpus + 1, reserved_disk_gb = reserved_disk_gb + 3`.execute(
      db,
    );
    await expectOne('reservation', FAKE_HOST_ID, /promised vcpus \d+ instead of \d+, disk_gb \d+ instead of \d+,/);
    await expectMended('reservation', FAKE_HOST_ID);
  });

  it('a recount in the middle of creates and deletes ends with the right sums', async () => {
    let isChurning = true;
    const churn = async () => {
      while (isChurning) await api('DELETE', `/v1/machines/${await create()}`);
    };
    const churning = Promise.all([churn(), churn(), churn(), churn()]);
    for (let round = 0; round < 10; round++) {
      await sql`update accounts set used_machines = used_machines + 1, used_vcpus = used_vcpus + 3 where id = ${accountId}`.execute(
        db,
      );
      await sql`update hosts set reserved_memory_mb = reserved_memory_mb + 128`.execute(db);
      await fix();
    }
    isChurning = false;
    await churning;
    assert.deepEqual((await look()).findings, []);
    await checkBooks(bed);
  });

  it('a running job of a machine that does not run is lost, and the feed says so', async () => {
    const id = await create();
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    await api('POST', `/v1/machines/${id}/stop`);
    await sql`update execs set status = 'running', finished_at = null where id = ${job}`.execute(db);
    const entries = async () => (await api('GET', `/v1/machines/${id}/activity`)).json.activity.length;
    const before = await entries();
    await expectOne('job', job, /running in machine .* which is stopped/);
    await expectMended('job', job);
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'lost');
    assert.equal(await entries(), before + 1);
  });

  it('idempotency keys past their time are removed, the others stay', async () => {
    const answer = await api('POST', '/v1/machines', { headers: { 'idempotency-key': 'old' } });
    await api('POST', '/v1/machines', { headers: { 'idempotency-key': 'new' } });
    await sql`update idempotency_keys set created_at = now() - interval '27 hours' where machine_id = ${answer.json.id}`.execute(
      db,
    );
    await expectOne('idempotency key', accountId, /^1 of the account/);
    await expectMended('idempotency key', accountId);
    const left = await db.selectFrom('idempotency_keys').select('key').execute();
    assert.deepEqual(left, [{ key: 'new' }]);
  });

  it('what a host finds in its own house is told, and mended by the host', async () => {
    host.findings = [
      { kind: 'tap', subject: 'sbtaaaaaaaaaaaa', detail: 'No machine has it.', fixable: true },
      { kind: 'process', subject: 'QEMU process 7', detail: 'It is not ours for certain.', fixable: false },
    ];
    const { findings, fixed } = await fix();
    assert.deepEqual(
      [fixed.map((finding) => finding.subject), findings.map((finding) => [finding.subject, finding.fix])],
      [['sbtaaaaaaaaaaaa'], [['QEMU process 7', null]]],
    );
    assert.equal(host.callsOf('fixAudit'), 1);
  });

  it('a host that is away, or that fails, is told as not looked at', async () => {
    host.fault('audit', 'fail');
    const failing = await look();
    assert.deepEqual(failing.findings, []);
    assert.deepEqual(
      failing.not_looked_at.map(({ host_id }) => host_id),
      [FAKE_HOST_ID],
    );
    host.heal();
    await host.away();
    await bed.settled(() => plane.app.hosts.reachableIds().length === 0);
    assert.deepEqual((await look()).not_looked_at, [{ host_id: FAKE_HOST_ID, why: 'it is away' }]);
    await host.listen();
    await bed.settled(() => plane.app.hosts.reachableIds().length === 1);
    assert.deepEqual((await look()).not_looked_at, []);
  });
});
