// Tests hosts that go away: a host that hangs delays no other, what ran on a host that is away for too long ends, and
// nothing ends by mistake. Also tests the operator's changes of hosts.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import { HostUnavailable } from '../src/hosts/client.ts';
import { createRounds } from '../src/reconcilers/rounds.ts';
import { callAdmin } from './support/admin.ts';
import type { FakeHost } from './support/fake-host.ts';
import { until } from './support/postgres.ts';
import { holdRow } from './support/row-locks.ts';
import { type BedOptions, checkBooks, startTestBed, type TestBed } from './support/test-bed.ts';

const WITHIN_MS = 60_000;

/** A service whose only host is on another computer. */
async function startWithRemote(options: BedOptions = {}): Promise<TestBed & { remote: FakeHost }> {
  const config = { hasLocalHost: false, ...options.config };
  const bed = await startTestBed({ remotes: [{}], ...options, config });
  const [remote] = bed.remotes;
  assert(remote);
  return { ...bed, remote };
}

const isReachable = ({ plane }: TestBed) => plane.app.hosts.reachableIds().length > 0;
const machineOf = async ({ api }: TestBed, id: string) => (await api('GET', `/v1/machines/${id}`)).json;
const admin = <T>({ plane }: TestBed, path: string, body?: object) =>
  callAdmin<T>(plane.app.config.adminSocket, path, body);
const hostsOf = async (bed: TestBed) => (await admin<{ hosts: HostSummary[] }>(bed, '/admin/hosts')).json.hosts;

describe('a host that hangs', () => {
  it('delays the comparison of no other host', async () => {
    const bed = await startTestBed({ remotes: [{}, {}, {}] });
    const [hanging, other, last] = bed.remotes;
    assert(hanging && other && last);
    for (const operation of ['list', 'listVolumes', 'listSnapshots', 'info'] as const) hanging.fault(operation, 'hang');
    const planted = [other, last].map((host) => ({ host, id: uuidv7() }));
    for (const { host, id } of planted) host.plant(id);
    await until(() => planted.every(({ host, id }) => !host.machines.has(id)), 'both were compared', WITHIN_MS);
    assert.equal((await bed.api('POST', '/v1/machines')).status, 201);
  });

  it('takes no place from others, however many hang', async () => {
    const { plane } = await startTestBed();
    const ids = Array.from({ length: 100 }, (_, index) => `host ${index}`);
    const compared = new Set<string>();
    const hosts = { ...plane.app.hosts, listenedIds: () => ids };
    const closing = new AbortController();
    const forever = new Promise<never>(() => undefined);
    const rounds = createRounds({ ...plane.app, hosts, closing: closing.signal }, [
      {
        name: 'test',
        pauseMs: { shortest: 3_600_000, longest: 3_600_000 },
        begin: (hostId) => async () => {
          if (hostId !== 'host 99') return forever;
          compared.add(hostId);
          return { size: 0, isSettled: true };
        },
      },
    ]);
    await rounds.pass();
    await until(() => compared.size === 1, 'the last host was compared', WITHIN_MS);
    closing.abort();
  });
});

describe('a host that is away', () => {
  const away = { config: { hostLeaseSec: 1 } };

  it('loses its machines after its lease, and its VMs are ended when it is back', async () => {
    const bed = await startWithRemote(away);
    const { api, remote, plane } = bed;
    const { id } = (await api('POST', '/v1/machines')).json;
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    await remote.away();
    await until(async () => (await machineOf(bed, id)).state === 'error', 'it is in error', WITHIN_MS);
    const { error } = await machineOf(bed, id);
    assert.equal(error, 'Its host remote-1 went away: nobody could reach it for 1 seconds.');
    assert.equal((await api('GET', `/v1/machines/${id}/execs/${job}`)).json.status, 'lost');
    assert.equal((await api('GET', '/v1/quotas')).json.usage?.machines ?? 0, 0);
    const open = await plane.app.db
      .selectFrom('meters')
      .select('id')
      .where('resource_id', '=', id)
      .where('ended_at', 'is', null)
      .execute();
    assert.deepEqual(open, [], 'nothing is metered any more');
    assert.equal(remote.machines.get(id)?.report.status, 'running', 'the host itself ends nothing');

    const asked = remote.callsOf('ensure');
    await remote.listen();
    await until(() => remote.machines.get(id)?.report.status === 'stopped', 'the stale VM was ended', WITHIN_MS);
    assert.equal(remote.callsOf('ensure'), asked + 1, 'nothing was started');
    assert.equal((await machineOf(bed, id)).error, error);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    await checkBooks(bed);
  });

  it('keeps its machines within its lease', async () => {
    const bed = await startWithRemote();
    const { id } = (await bed.api('POST', '/v1/machines')).json;
    await bed.remote.away();
    await until(() => !isReachable(bed), 'it is away', WITHIN_MS);
    const refused = await bed.api('POST', '/v1/machines');
    assert.deepEqual([refused.status, refused.json.code], [503, 'host_unavailable']);
    assert(refused.headers.get('retry-after'));
    const exec = await bed.api('POST', `/v1/machines/${id}/execs`, { body: { command: 'true' } });
    assert.deepEqual([exec.status, exec.json.code], [503, 'host_unavailable']);
    await bed.remote.listen();
    await until(() => isReachable(bed), 'it is back', WITHIN_MS);
    await bed.plane.reconciler.runOnce();
    assert.equal((await machineOf(bed, id)).state, 'running');
    await checkBooks(bed);
  });

  it('is not given up for an old time in its row alone, as after a step of the clock', async () => {
    const bed = await startWithRemote();
    const { db } = bed.plane.app;
    const { id } = (await bed.api('POST', '/v1/machines')).json;
    await bed.remote.away();
    await until(() => !isReachable(bed), 'it is away', WITHIN_MS);
    await sql`update hosts set seen_at = now() - interval '1 day', away_since = now() - interval '1 day'`.execute(db);
    await bed.plane.reconciler.runOnce();
    assert.equal((await machineOf(bed, id)).state, 'running');
  });

  it('is not given up by a replica that alone does not reach it; another one takes it over', async () => {
    const bed = await startWithRemote({ config: { hostLeaseSec: 4 }, timing: { leaseTtlMs: 1_500 } });
    const { id } = (await bed.api('POST', '/v1/machines')).json;
    const cut = { isCut: false };
    // The second replica alone loses its way to the host.
    const blind = await bed.addReplica({}, (_remote, reached) => ({
      ...reached,
      info: () => (cut.isCut ? Promise.reject(new HostUnavailable(false)) : reached.info()),
      events: (signal) => reached.events(cut.isCut ? AbortSignal.abort() : signal),
    }));
    const { app } = blind;
    await app.db.updateTable('hosts').set({ listener_id: app.replicaId }).execute();
    await until(() => app.hosts.listenedIds().length === 1, 'it listens', WITHIN_MS);
    cut.isCut = true;
    await bed.remote.away();
    await bed.remote.listen();
    await until(() => app.presence.failing().size === 1, 'it does not reach the host', WITHIN_MS);
    await until(() => bed.plane.app.hosts.listenedIds().length === 1, 'the other one took it over', WITHIN_MS);
    assert.equal((await machineOf(bed, id)).state, 'running');
  });

  it('ends a start that it never answered, and a create that no client has seen goes when it is back', async () => {
    const bed = await startWithRemote(away);
    const { api, remote } = bed;
    const { id } = (await api('POST', '/v1/machines')).json;
    await api('POST', `/v1/machines/${id}/stop`);
    remote.fault('ensure', 'drop');
    remote.fault('delete', 'drop');
    const starting = api('POST', `/v1/machines/${id}/start`);
    const creating = api('POST', '/v1/machines', { headers: { 'idempotency-key': 'never answered' } });
    for (const { status, json } of await Promise.all([starting, creating])) {
      assert.deepEqual([status, json.code], [503, 'host_unavailable']);
    }
    await remote.away();
    await until(async () => (await machineOf(bed, id)).state === 'error', 'it is in error', WITHIN_MS);
    assert.equal((await machineOf(bed, id)).operation, null);
    const used = async () =>
      (
        await bed.plane.app.db
          .selectFrom('accounts')
          .select('used_machines')
          .where('id', '=', bed.accountId)
          .executeTakeFirstOrThrow()
      ).used_machines;
    await until(async () => (await used()) === 0, 'neither counts', WITHIN_MS);
    assert.deepEqual(
      (await api('GET', '/v1/machines')).json.machines.map((machine: { id: string }) => machine.id),
      [id],
      'the other one is not shown',
    );
    remote.heal();
    await remote.listen();
    const rows = () => bed.plane.app.db.selectFrom('machines').select('id').execute();
    await until(async () => (await rows()).length === 1, 'the create was undone', WITHIN_MS);
    assert.notEqual(remote.machines.get(id)?.report.status, 'running');
    assert.equal((await machineOf(bed, id)).state, 'error');
    await checkBooks(bed);
  });
});

describe('the operator', () => {
  const idOf = (host: FakeHost) => host.info.host_id;

  it('cordons and drains a host, and takes it back', async () => {
    const bed = await startWithRemote();
    const { api, remote } = bed;
    const { id } = (await api('POST', '/v1/machines')).json;
    for (const [change, state] of [
      ['cordon', 'cordoned'],
      ['drain', 'draining'],
    ]) {
      const { json } = await admin<HostSummary>(bed, `/admin/hosts/${idOf(remote)}/${change}`, {});
      assert.deepEqual([json.state, json.draining, json.machines], [state, true, 1]);
      assert.deepEqual([json.name, json.address], ['remote-1', 'remote-1:7072']);
      assert.equal((await api('POST', '/v1/machines')).json.code, 'fleet_capacity');
      const { json: ready } = await admin<HostSummary>(bed, `/admin/hosts/${idOf(remote)}/uncordon`, {});
      assert.deepEqual([ready.state, ready.draining], ['ready', false]);
    }
    assert.equal((await machineOf(bed, id)).state, 'running');
    assert.equal((await api('POST', '/v1/machines')).status, 201);
  });

  it('removes an empty host, which nobody connects to any more', async () => {
    const bed = await startTestBed({ remotes: [{}] });
    const [remote] = bed.remotes;
    assert(remote);
    const { status, json } = await admin<HostSummary>(bed, `/admin/hosts/${idOf(remote)}/remove`, {});
    assert.deepEqual([status, json.state], [200, 'removed']);
    await until(() => !bed.plane.app.hosts.listenedIds().includes(idOf(remote)), 'the stream ended', WITHIN_MS);
    const calls = remote.calls.length;
    await bed.plane.reconciler.runOnce();
    assert.equal((await bed.api('POST', '/v1/machines')).status, 201);
    assert.equal(remote.calls.length, calls);
    assert.deepEqual(
      (await hostsOf(bed)).map((host) => host.state),
      ['ready', 'removed'],
    );
    assert.equal((await admin(bed, `/admin/hosts/${uuidv7()}/remove`, {})).status, 404);
  });

  it('is removed by force without what a move takes away meanwhile', async () => {
    const bed = await startTestBed({ remotes: [{}] });
    const { api, host } = bed;
    const [remote] = bed.remotes as [FakeHost];
    const { db, hostTable } = bed.plane.app;
    await db.updateTable('hosts').set({ draining: true }).where('id', '=', idOf(host)).execute();
    hostTable.expire();
    const ids = [(await api('POST', '/v1/machines')).json.id, (await api('POST', '/v1/machines')).json.id].sort();
    const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    const [first, moved] = ids as [string, string];
    await remote.away();
    // The removal takes the machines in the order of their ids, after it has listed all of them.
    const held = await holdRow(bed.databaseUrl, 'machines', first);
    const removing = admin<HostSummary>(bed, `/admin/hosts/${idOf(remote)}/remove`, { force: true });
    try {
      await held.isWaitedFor(1);
      await db
        .updateTable('machines')
        .set({ host_id: idOf(host) })
        .where('id', '=', moved)
        .execute();
      await db
        .updateTable('volumes')
        .set({ host_id: idOf(host) })
        .where('id', '=', volume)
        .execute();
    } finally {
      await held.release();
    }
    assert.equal((await removing).status, 200);
    assert.match((await machineOf(bed, first)).error ?? '', /was removed from the service/);
    assert.doesNotMatch((await machineOf(bed, moved)).error ?? '', /was removed from the service/);
    assert.doesNotMatch((await api('GET', `/v1/volumes/${volume}`)).json.error ?? '', /was removed from the service/);
  });

  it('must force the removal of a host that is in use; what was there can then be deleted only', async () => {
    const bed = await startWithRemote();
    const { api, remote } = bed;
    const [running, stopped] = [
      (await api('POST', '/v1/machines')).json.id,
      (await api('POST', '/v1/machines')).json.id,
    ];
    await api('POST', `/v1/machines/${stopped}/stop`);
    const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    const snapshot = (await api('POST', `/v1/machines/${running}/snapshots`, { body: {} })).json.id;
    const path = `/admin/hosts/${idOf(remote)}/remove`;
    const refused = await admin<{ code: string; detail: string }>(bed, path, {});
    assert.deepEqual([refused.status, refused.json.code], [409, 'conflict']);
    assert.match(refused.json.detail, /machines \(2\), volumes \(1\) or snapshots \(1\)/);
    assert.equal((await machineOf(bed, running)).state, 'running');

    await remote.away();
    const removed = await admin<HostSummary>(bed, path, { force: true });
    assert.deepEqual([removed.status, removed.json.state], [200, 'removed']);
    for (const id of [running, stopped]) {
      const machine = await machineOf(bed, id);
      assert.deepEqual([machine.state, machine.error], ['error', 'Its host remote-1 was removed from the service.']);
      assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 409);
    }
    assert.equal((await api('GET', `/v1/volumes/${volume}`)).json.state, 'error');
    assert.equal((await api('GET', `/v1/snapshots/${snapshot}`)).json.state, 'error');
    assert.equal((await api('DELETE', `/v1/snapshots/${snapshot}`)).status, 204);
    for (const id of [running, stopped]) assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    assert.equal((await api('DELETE', `/v1/volumes/${volume}`)).status, 204);
    assert.equal((await api('POST', '/v1/machines')).status, 503);
    const left = await bed.plane.app.db
      .selectFrom('operations')
      .select('id')
      .where('finished_at', 'is', null)
      .execute();
    assert.deepEqual(left, []);
  });
});
