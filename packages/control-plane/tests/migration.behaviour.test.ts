// Tests the update of a service that has unfinished work: a database at migration 008 with every kind of unfinished
// change that an older version could leave. The new version must finish each of them as the older version would have.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Migrator } from 'kysely/migration';
import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { insertKey } from '../src/api-keys/store.ts';
import { DEFAULT_BOUNDS, DEFAULT_OVERCOMMIT, DEFAULT_RATES, DEFAULT_TIMING } from '../src/config.ts';
import { type ControlPlane, startControlPlane } from '../src/control-plane.ts';
import { asOwner } from '../src/db/database.ts';
import { MIGRATIONS } from '../src/db/migrate.ts';
import { createLog } from '../src/log.ts';
import { FAKE_HOST_ID, FakeHost } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { createDatabase, endSharedPostgres, until } from './support/postgres.ts';
import type { TestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

const WITHIN_MS = 60_000;
const OLD_VERSION = '008-snapshots';
after(endSharedPostgres);

/** The state that an older version left behind: its database and its host. */
class Old {
  readonly client: pg.Client;
  readonly host: FakeHost;
  readonly accountId = uuidv7();
  readonly #generation = 5;

  constructor(client: pg.Client, host: FakeHost) {
    this.client = client;
    this.host = host;
  }

  async insert(table: string, row: Record<string, unknown>): Promise<string> {
    const names = Object.keys(row);
    const places = names.map((_, index) => `$${index + 1}`);
    await this.client.query(`insert into ${table} (${names.join()}) values (${places.join()})`, Object.values(row));
    return String(row.id);
  }

  /** Inserts a machine. `onHost` says what the host has for it. */
  async machine(row: Record<string, unknown>, onHost: 'running' | 'stopped' | 'nothing'): Promise<string> {
    const id = uuidv7();
    this.host.plant(id);
    const planted = this.host.machines.get(id);
    assert(planted);
    // The host is one generation behind the row, because the unfinished operation has not reached it.
    const generation = this.#generation - 1;
    planted.report = { ...planted.report, generation, status: onHost === 'stopped' ? 'stopped' : 'running' };
    planted.wanted = { ...planted.wanted, generation };
    if (onHost === 'nothing') this.host.machines.delete(id);
    return this.insert('machines', {
      ...{ id, account_id: this.accountId, host_id: FAKE_HOST_ID, name: 'old', generation: this.#generation },
      ...{ vcpus: 1, memory_mb: 128, rootfs_size_gb: 2, stack: 'base', private_ip: planted.report.private_ip },
      ...{ metadata: '{}', isolation: 'emulated', error: null, started_at: new Date() },
      ...row,
    });
  }

  async volume(row: Record<string, unknown>, isOnHost = true): Promise<string> {
    const id = uuidv7();
    const kind = row.kind === 'root' ? 'root' : 'data';
    if (isOnHost) this.host.volumes.set(id, { volume_id: id, size_gb: 7, kind });
    return this.insert('volumes', {
      ...{ id, account_id: this.accountId, host_id: FAKE_HOST_ID, name: 'old', kind, size_gb: 7, state: 'available' },
      ...row,
    });
  }

  /** Makes the host report the volume as plugged into the machine. */
  plug(machine: string, volume: string, mount_path: string): void {
    const planted = this.host.machines.get(machine);
    assert(planted);
    planted.wanted = { ...planted.wanted, volumes: [{ volume_id: volume, mount_path }] };
  }

  async snapshot(machine: string, change: 'creating' | 'deleting' | null): Promise<string> {
    const id = uuidv7();
    const facts = { size_gb: 2, stored_bytes: 4_000_000 };
    this.host.snapshots.set(id, { snapshot_id: id, machine_id: machine, kind: 'disk', ...facts });
    return this.insert('snapshots', {
      ...{ id, account_id: this.accountId, host_id: FAKE_HOST_ID, machine_id: machine, name: '', kind: 'disk' },
      ...{ ...facts, stack: 'base', vcpus: 1, memory_mb: 128, change },
    });
  }

  /** Sets the usage counters of accounts and hosts to the values that the older version would have written. */
  async count(): Promise<void> {
    await this.client.query(`
      update accounts set (used_machines, used_vcpus, used_memory_mb, used_storage_gb) = (
        select count(*), coalesce(sum(vcpus), 0), coalesce(sum(memory_mb), 0), coalesce(sum(rootfs_size_gb), 0)
        from machines where state not in ('error', 'destroyed'))`);
    await this.client.query(`
      update accounts set
        used_storage_gb = used_storage_gb + (select coalesce(sum(size_gb), 0) from volumes where change is distinct from 'taking'),
        used_volumes = (select count(*) from volumes where kind = 'data')`);
    await this.client.query(`
      update hosts set reserved_memory_mb = (
        select coalesce(sum(memory_mb), 0) from machines where state in ('provisioning', 'running'))`);
  }
}

type New = {
  plane: ControlPlane;
  host: FakeHost;
  bed: TestBed;
  machine: (id: string) => Promise<Machine | undefined>;
  volume: (id: string) => Promise<Record<string, unknown> | undefined>;
  /**
   * The actions of the activity feed that name this machine, volume or snapshot, oldest first, as `action by actor`.
   */
  feed: (id: string) => Promise<string[]>;
  call: (method: string, path: string, body?: object) => Promise<{ status: number; json: Record<string, unknown> }>;
};

/**
 * Seeds a database and a host as an older version left them, then starts the current version on them and runs `check`.
 * `check` begins when all operations have ended, or at once if `isSettledFirst` is false.
 */
async function update<Ids>(
  seed: (old: Old) => Promise<Ids>,
  check: (now: New, ids: Ids) => Promise<void>,
  { isSettledFirst = true } = {},
): Promise<void> {
  const databaseUrl = await createDatabase();
  const root = mkdtempSync(join(tmpdir(), 'sandbar-migration-'));
  const log = createLog('silent');
  const host = new FakeHost(join(root, 'host.sock'));
  const client = new pg.Client({ connectionString: databaseUrl });
  let plane: ControlPlane | undefined;
  try {
    await asOwner(databaseUrl, log, async (owner) => {
      const migrator = new Migrator({ db: owner, provider: { getMigrations: async () => MIGRATIONS } });
      const { error } = await migrator.migrateTo(OLD_VERSION);
      if (error) throw error;
    });
    await client.connect();
    const old = new Old(client, host);
    await old.insert('accounts', {
      ...{ id: old.accountId, email: 'old@example.test', tier: 'enterprise', billing_mode: 'unmetered' },
    });
    await old.insert('hosts', {
      ...{ id: FAKE_HOST_ID, version: '0', boot_id: 'boot-1', isolation: 'emulated', network: 'user' },
      ...{ subnet: '10.83.0.0/24', cpus: 2, memory_mb: 65_536, images: '[]' },
      created_at: new Date(Date.now() - 3_600_000),
    });
    const ids = await seed(old);
    await old.count();
    await host.listen();
    const home = join(root, 'home');
    const started = await startControlPlane(
      {
        ...{ home, hostAgentSocket: join(root, 'host.sock'), adminSocket: homePaths(home).adminSocket, databaseUrl },
        ...{
          listen: { host: '127.0.0.1', port: 0 },
          metricsListen: { host: '127.0.0.1', port: 0 },
          tls: undefined,
          hstsSec: 0,
          objectStore: undefined,
        },
        ...{
          hasLocalHost: true,
          hostLeaseSec: 300,
          overcommit: DEFAULT_OVERCOMMIT,
          activityRetentionDays: 365,
          adminHttp: true,
          reclaimDays: 30,
          terminalIdleSec: 600,
          allowEmulatedTenants: true,
          rates: DEFAULT_RATES,
          bounds: DEFAULT_BOUNDS,
        },
        ...{ secret: 'a secret of the tests that is long enough', trustProxy: '', logLevel: 'silent' },
        ...{ dashboardDir: undefined, previewDomain: 'localhost', previewFrameOrigins: [] },
        auth: {
          publicUrl: 'http://sandbar.test',
          signUp: 'closed',
          signUpBilling: 'prepaid',
          mail: undefined,
          oidc: undefined,
        },
        billing: { payments: undefined },
        timing: {
          ...DEFAULT_TIMING,
          ...{ reconcileMs: 100, reconcileJobsMs: 200, unknownGraceMs: 200, retryMs: { first: 100, longest: 1_000 } },
          ...{ reconnectMs: { first: 20, longest: 100 }, shutdownMs: 2_000 },
        },
      },
      log,
    );
    plane = started;
    const { db } = started.app;
    const key = await insertKey(db, old.accountId, 'full', 'full');
    const call: New['call'] = async (method, path, body) => {
      const { host: name, port } = started.address;
      const response = await fetch(`http://${name}:${port}${path}`, {
        method,
        headers: { authorization: `Bearer ${key}`, ...(body ? { 'content-type': 'application/json' } : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      const text = await response.text();
      return { status: response.status, json: text === '' ? {} : JSON.parse(text) };
    };
    const settled = async () => {
      const unfinished = db.selectFrom('operations').selectAll().where('finished_at', 'is', null);
      return (await unfinished.execute()).length === 0;
    };
    if (isSettledFirst) await until(settled, 'everything has ended', WITHIN_MS);
    // checkAll and the audit read only these fields of a test bed.
    const bed = { plane: started, host, remotes: [] as TestBed['remotes'] } as TestBed;
    await check(
      {
        ...{ plane: started, host, bed, call },
        machine: async (id) => {
          const { status, json } = await call('GET', `/v1/machines/${id}`);
          return status === 200 ? (json as Machine) : undefined;
        },
        volume: (id) => db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst(),
        feed: async (id) => {
          const rows = await db.selectFrom('activity').selectAll().orderBy('created_at').execute();
          return rows
            .filter(({ machine_id, metadata }) =>
              [machine_id, metadata.volume_id, metadata.snapshot_id].some((subject) => subject === id),
            )
            .map(({ action, actor }) => `${action} by ${actor}`);
        },
      },
      ids,
    );
    await until(settled, 'everything has ended', WITHIN_MS);
    await checkAll(bed);
  } finally {
    host.heal();
    await plane?.close();
    await client.end();
    await host.away().catch(() => undefined);
    rmSync(root, { recursive: true, force: true });
  }
}

const PROVISIONING = { state: 'provisioning', desired: 'running' };
const NEVER_RAN = { started_at: null };
const RUNNING = { state: 'running', desired: 'running' };
const STOPPED = { state: 'stopped', desired: 'stopped', stopped_at: new Date() };

describe('an update finishes, as the older version would have,', () => {
  it('a create', () =>
    update(
      (old) => old.machine({ ...PROVISIONING, ...NEVER_RAN }, 'nothing'),
      async ({ machine, feed, host }, id) => {
        assert.equal((await machine(id))?.state, 'running');
        assert.equal(host.machines.get(id)?.report.status, 'running');
        assert.deepEqual(await feed(id), ['machine.created by user']);
      },
    ));

  it('a create that the host has done', () =>
    update(
      (old) => old.machine({ ...PROVISIONING, ...NEVER_RAN, generation: 4 }, 'running'),
      async ({ machine, feed }, id) => {
        assert.equal((await machine(id))?.state, 'running');
        assert.deepEqual(await feed(id), ['machine.created by user']);
      },
    ));

  it('a create from a root volume, which becomes its disk', () =>
    update(
      async (old) => {
        const volume = await old.volume({ kind: 'root', stack: 'base' });
        const id = await old.machine(
          { ...PROVISIONING, ...NEVER_RAN, root_volume_id: volume, rootfs_size_gb: 7 },
          'nothing',
        );
        await old.client.query(`update volumes set change = 'taking', machine_id = $2 where id = $1`, [volume, id]);
        return { id, volume };
      },
      async ({ machine, volume }, ids) => {
        assert.equal((await machine(ids.id))?.state, 'running');
        assert.equal(await volume(ids.volume), undefined);
      },
    ));

  it('the undo of a create: nothing of it is left, and its key is free', () =>
    update(
      async (old) => {
        const id = await old.machine({ state: 'provisioning', desired: 'discarded', ...NEVER_RAN }, 'running');
        const key = { account_id: old.accountId, key: 'k', fingerprint: Buffer.alloc(32), machine_id: id };
        await old.insert('idempotency_keys', key);
        return id;
      },
      async ({ machine, feed, host, plane }, id) => {
        assert.equal(await machine(id), undefined);
        assert(!host.machines.has(id));
        assert.deepEqual(await feed(id), []);
        assert.deepEqual(await plane.app.db.selectFrom('idempotency_keys').selectAll().execute(), []);
      },
    ));

  it('the undo of a create from a root volume, which is a volume again', () =>
    update(
      async (old) => {
        const volume = await old.volume({ kind: 'root', stack: 'base' });
        const row = { state: 'provisioning', desired: 'discarded', root_volume_id: volume, rootfs_size_gb: 7 };
        const id = await old.machine({ ...row, ...NEVER_RAN }, 'nothing');
        await old.client.query(`update volumes set change = 'taking', machine_id = $2 where id = $1`, [volume, id]);
        return { id, volume };
      },
      async ({ machine, volume }, ids) => {
        assert.equal(await machine(ids.id), undefined);
        const row = await volume(ids.volume);
        assert.deepEqual([row?.state, row?.machine_id, row?.size_gb], ['available', null, 7]);
      },
    ));

  it('a start', () =>
    update(
      (old) => old.machine({ ...PROVISIONING, stopped_at: new Date() }, 'stopped'),
      async ({ machine, feed, host }, id) => {
        assert.equal((await machine(id))?.state, 'running');
        assert.equal(host.machines.get(id)?.report.status, 'running');
        assert.deepEqual(await feed(id), ['machine.started by user']);
      },
    ));

  it('the undo of a start', () =>
    update(
      (old) => old.machine({ state: 'provisioning', desired: 'stopped' }, 'running'),
      async ({ machine, feed, host }, id) => {
        assert.equal((await machine(id))?.state, 'stopped');
        assert.equal(host.machines.get(id)?.report.status, 'stopped');
        assert.deepEqual(await feed(id), []);
      },
    ));

  for (const actor of ['user', 'system:operator']) {
    it(`a stop by ${actor}`, () =>
      update(
        (old) => old.machine({ state: 'running', desired: 'stopped', desired_by: actor }, 'running'),
        async ({ machine, feed, host }, id) => {
          assert.equal((await machine(id))?.state, 'stopped');
          assert.equal(host.machines.get(id)?.report.status, 'stopped');
          assert.deepEqual(await feed(id), [`machine.stopped by ${actor}`]);
        },
      ));
  }

  for (const state of ['pending', 'provisioning', 'running', 'stopped', 'error']) {
    it(`a destroy of a machine that is ${state}`, () =>
      update(
        (old) => old.machine({ state, desired: 'destroyed' }, state === 'stopped' ? 'stopped' : 'running'),
        async ({ machine, feed, host }, id) => {
          assert.equal((await machine(id))?.state, 'destroyed');
          assert(!host.machines.has(id));
          assert.deepEqual(await feed(id), ['machine.destroyed by user']);
        },
      ));
  }

  it('a destroy that keeps the disk', () =>
    update(
      async (old) => {
        const keep = uuidv7();
        return {
          keep,
          id: await old.machine({ state: 'running', desired: 'destroyed', keep_volume_id: keep }, 'running'),
        };
      },
      async ({ machine, volume }, { id, keep }) => {
        assert.equal((await machine(id))?.root_volume_id, keep);
        const row = await volume(keep);
        assert.deepEqual([row?.kind, row?.state, row?.size_gb], ['root', 'available', 2]);
      },
    ));

  it('a destroy that has removed one of three snapshots', () =>
    update(
      async (old) => {
        const id = await old.machine({ state: 'running', desired: 'destroyed', snapshots_deleted: 1 }, 'running');
        return { id, snapshots: [await old.snapshot(id, null), await old.snapshot(id, null)] };
      },
      async ({ machine, host, plane }, { id }) => {
        assert.equal((await machine(id))?.state, 'destroyed');
        assert.equal(host.snapshots.size, 0);
        const entry = await plane.app.db
          .selectFrom('activity')
          .select('metadata')
          .where('action', '=', 'machine.destroyed')
          .executeTakeFirst();
        assert.equal(entry?.metadata.snapshots_deleted, 3);
      },
    ));

  it('a destroy of a machine with a volume and a snapshot that were changing', () =>
    update(
      async (old) => {
        const id = await old.machine({ state: 'running', desired: 'destroyed' }, 'running');
        const volume = await old.volume({ change: 'attaching', machine_id: id, mount_path: '/mnt/a' });
        return { id, volume, snapshot: await old.snapshot(id, 'creating') };
      },
      async ({ machine, volume, host, feed }, ids) => {
        assert.equal((await machine(ids.id))?.state, 'destroyed');
        const row = await volume(ids.volume);
        assert.deepEqual([row?.state, row?.machine_id, row?.mount_path], ['available', null, null]);
        assert(!host.snapshots.has(ids.snapshot));
        assert.deepEqual(await feed(ids.snapshot), []);
      },
    ));

  for (const state of ['running', 'stopped'] as const) {
    it(`a restore of a machine that is ${state}`, () =>
      update(
        async (old) => {
          const id = await old.machine(state === 'running' ? RUNNING : STOPPED, state);
          const snapshot = await old.snapshot(id, null);
          await old.client.query('update machines set restoring_snapshot_id = $2 where id = $1', [id, snapshot]);
          return { id, snapshot };
        },
        async ({ machine, host, feed }, { id, snapshot }) => {
          assert.equal((await machine(id))?.state, state);
          assert.deepEqual(
            host.machines.get(id)?.restores.map(({ snapshotId }) => snapshotId),
            [snapshot],
          );
          assert.deepEqual(await feed(snapshot), ['snapshot.restored by user']);
        },
      ));
  }

  it('an attach', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        return { id, volume: await old.volume({ change: 'attaching', machine_id: id, mount_path: '/mnt/a' }) };
      },
      async ({ volume, feed }, ids) => {
        const row = await volume(ids.volume);
        assert.deepEqual([row?.state, row?.machine_id, row?.mount_path], ['attached', ids.id, '/mnt/a']);
        assert.deepEqual(await feed(ids.volume), ['volume.attached by user']);
      },
    ));

  it('the undo of an attach', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        const volume = await old.volume({ change: 'detaching', machine_id: id, mount_path: '/mnt/a' });
        old.plug(id, volume, '/mnt/a');
        return { id, volume };
      },
      async ({ volume, feed, host }, ids) => {
        const row = await volume(ids.volume);
        assert.deepEqual([row?.state, row?.machine_id, row?.mount_path], ['available', null, null]);
        assert.deepEqual(host.machines.get(ids.id)?.wanted.volumes, []);
        assert.deepEqual(await feed(ids.volume), []);
      },
    ));

  it('a detach', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        const row = { state: 'attached', change: 'detaching', machine_id: id, mount_path: '/mnt/a' };
        const volume = await old.volume(row);
        old.plug(id, volume, '/mnt/a');
        return { id, volume };
      },
      async ({ volume, feed, host }, ids) => {
        const row = await volume(ids.volume);
        assert.deepEqual([row?.state, row?.machine_id, row?.mount_path], ['available', null, null]);
        assert.deepEqual(host.machines.get(ids.id)?.wanted.volumes, []);
        assert.deepEqual(await feed(ids.volume), ['volume.detached by user']);
      },
    ));

  it('a detach that its client asks for again: it is joined, and told once', () =>
    update(
      async (old) => {
        // The first host call after the update belongs to the detach, so this fault makes the detach hang.
        old.host.fault('ensure', 'hang', 1);
        const id = await old.machine(RUNNING, 'running');
        const row = { state: 'attached', change: 'detaching', machine_id: id, mount_path: '/mnt/a' };
        const volume = await old.volume(row);
        old.plug(id, volume, '/mnt/a');
        return { id, volume };
      },
      async ({ call, feed, host, plane }, { volume }) => {
        await until(() => host.callsOf('ensure') > 0, 'the host is asked', WITHIN_MS);
        const again = call('POST', `/v1/volumes/${volume}/detach`);
        const operations = plane.app.db.selectFrom('operations').select('id').where('volume_id', '=', volume);
        await somebodyWaitsFor((await operations.executeTakeFirstOrThrow()).id);
        host.release();
        const { status, json } = await again;
        assert.equal(status, 200, JSON.stringify(json));
        assert.deepEqual(await feed(volume), ['volume.detached by user']);
      },
      { isSettledFirst: false },
    ));

  it('the undo of a detach', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        const row = { state: 'attached', change: 'attaching', machine_id: id, mount_path: '/mnt/a' };
        return { id, volume: await old.volume(row) };
      },
      async ({ volume, feed, host }, ids) => {
        const row = await volume(ids.volume);
        assert.deepEqual([row?.state, row?.machine_id, row?.mount_path], ['attached', ids.id, '/mnt/a']);
        assert.equal(host.machines.get(ids.id)?.wanted.volumes?.length, 1);
        assert.deepEqual(await feed(ids.volume), []);
      },
    ));

  it('a detach from a machine in error, whose row is all there is to change', () =>
    update(
      async (old) => {
        const id = await old.machine({ state: 'error', desired: 'running', error: 'It died.' }, 'nothing');
        return old.volume({ state: 'attached', change: 'detaching', machine_id: id, mount_path: '/mnt/a' });
      },
      async ({ volume, feed }, id) => {
        assert.deepEqual([(await volume(id))?.state, (await volume(id))?.machine_id], ['available', null]);
        assert.deepEqual(await feed(id), ['volume.detached by user']);
      },
    ));

  it('the create of a volume, which is undone', () =>
    update(
      (old) => old.volume({ change: 'creating' }),
      async ({ volume, host, feed }, id) => {
        assert.equal(await volume(id), undefined);
        assert(!host.volumes.has(id));
        assert.deepEqual(await feed(id), []);
      },
    ));

  it('the delete of a volume', () =>
    update(
      (old) => old.volume({ deleting: true }),
      async ({ volume, host, feed }, id) => {
        assert.equal(await volume(id), undefined);
        assert(!host.volumes.has(id));
        assert.deepEqual(await feed(id), ['volume.deleted by user']);
      },
    ));

  it('a snapshot, which is undone', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        return { id, snapshot: await old.snapshot(id, 'creating') };
      },
      async ({ machine, host, feed }, { id, snapshot }) => {
        assert.equal((await machine(id))?.state, 'running');
        assert(!host.snapshots.has(snapshot));
        assert.deepEqual(await feed(snapshot), []);
      },
    ));

  it('several snapshots of one machine whose makers died, which are undone', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        for (let count = 0; count < 3; count++) await old.snapshot(id, 'creating');
        return id;
      },
      async ({ host, plane, call }, id) => {
        await until(() => host.snapshots.size === 0, 'the host has none', WITHIN_MS);
        assert.deepEqual(await plane.app.db.selectFrom('snapshots').selectAll().execute(), []);
        assert.equal((await call('DELETE', `/v1/machines/${id}`)).status, 200);
      },
    ));

  for (const [what, row, on] of [
    ['stopped', { state: 'running', desired: 'stopped' }, 'running'],
    ['started', { ...PROVISIONING }, 'stopped'],
  ] as const) {
    it(`a snapshot whose maker died, of a machine that is being ${what}: it is undone, and hinders no delete`, () =>
      update(
        async (old) => {
          const id = await old.machine(row, on);
          return { id, snapshot: await old.snapshot(id, 'creating') };
        },
        async ({ host, plane, call }, { id, snapshot }) => {
          await until(() => !host.snapshots.has(snapshot), 'the host has it no more', 10_000).catch(() => undefined);
          const rows = await plane.app.db.selectFrom('snapshots').select(['id', 'state']).execute();
          assert.deepEqual(rows, [], 'no row is left');
          assert.equal((await call('DELETE', `/v1/machines/${id}`)).status, 200);
        },
      ));
  }

  it('a snapshot whose maker died, of a machine that is being restored', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        const snapshot = await old.snapshot(id, null);
        await old.snapshot(id, 'creating');
        await old.client.query('update machines set restoring_snapshot_id = $2 where id = $1', [id, snapshot]);
        return snapshot;
      },
      async ({ plane, feed }, snapshot) => {
        assert.deepEqual(await feed(snapshot), ['snapshot.restored by user']);
        const rows = await plane.app.db.selectFrom('snapshots').select(['id', 'state']).execute();
        assert.deepEqual(rows, [{ id: snapshot, state: 'ready' }]);
      },
    ));

  it('a snapshot whose maker died, of a machine that gets a volume', () =>
    update(
      async (old) => {
        const id = await old.machine(RUNNING, 'running');
        await old.snapshot(id, 'creating');
        return old.volume({ change: 'attaching', machine_id: id, mount_path: '/mnt/a' });
      },
      async ({ plane, volume }, id) => {
        assert.equal((await volume(id))?.state, 'attached');
        assert.deepEqual(await plane.app.db.selectFrom('snapshots').select(['id', 'state']).execute(), []);
      },
    ));

  it('the delete of a snapshot', () =>
    update(
      async (old) => old.snapshot(await old.machine(RUNNING, 'running'), 'deleting'),
      async ({ host, feed, plane }, id) => {
        assert(!host.snapshots.has(id));
        assert.deepEqual(await feed(id), ['snapshot.deleted by user']);
        assert.deepEqual(await plane.app.db.selectFrom('snapshots').selectAll().execute(), []);
      },
    ));

  for (const [change, state, wanted] of [
    ['attaching', 'available', 'available'],
    ['detaching', 'attached', 'attached'],
  ] as const) {
    it(`a volume that is ${change} of a machine that is being stopped stays where it is`, () =>
      update(
        async (old) => {
          const id = await old.machine({ state: 'running', desired: 'stopped' }, 'running');
          const volume = await old.volume({ state, change, machine_id: id, mount_path: '/mnt/a' });
          if (state === 'attached') old.plug(id, volume, '/mnt/a');
          return { id, volume };
        },
        async ({ machine, volume }, ids) => {
          assert.equal((await machine(ids.id))?.state, 'stopped');
          assert.equal((await volume(ids.volume))?.state, wanted);
        },
      ));
  }
});

describe('an update leaves as it was', () => {
  it('what has nothing under way', () =>
    update(
      async (old) => {
        const machines = [
          await old.machine(RUNNING, 'running'),
          await old.machine(STOPPED, 'stopped'),
          await old.machine({ state: 'error', desired: 'running', error: 'It died.' }, 'nothing'),
        ];
        const volumes = [
          await old.volume({}),
          await old.volume({ kind: 'root', stack: 'base' }),
          await old.volume({ state: 'attached', machine_id: machines[0], mount_path: '/mnt/a' }),
        ];
        old.plug(machines[0] ?? '', volumes[2] ?? '', '/mnt/a');
        await old.snapshot(machines[0] ?? '', null);
        return { machines, volumes };
      },
      async ({ machine, volume, call, plane }, { machines, volumes }) => {
        const states = await Promise.all(machines.map(async (id) => (await machine(id))?.state));
        assert.deepEqual(states, ['running', 'stopped', 'error']);
        const kinds = await Promise.all(volumes.map(async (id) => (await volume(id))?.state));
        assert.deepEqual(kinds, ['available', 'available', 'attached']);
        assert.deepEqual(await plane.app.db.selectFrom('operations').selectAll().execute(), []);
        // The finished machines accept new requests.
        assert.equal((await call('POST', `/v1/machines/${machines[0]}/stop`)).status, 200);
        assert.equal((await call('POST', `/v1/machines/${machines[1]}/start`)).status, 200);
        assert.equal((await call('DELETE', `/v1/machines/${machines[2]}`)).status, 200);
        assert.equal((await machine(machines[1] ?? ''))?.operation, null);
        assert.equal((await machine(machines[1] ?? ''))?.on_expiry, 'destroy');
      },
    ));

  it('a destroyed machine, which names the volume that its disk became', () =>
    update(
      async (old) => {
        const volume = await old.volume({ kind: 'root', stack: 'base' });
        const row = { state: 'destroyed', desired: 'destroyed', destroyed_at: new Date(), keep_volume_id: volume };
        return { volume, id: await old.machine(row, 'nothing') };
      },
      async ({ machine }, { id, volume }) => assert.equal((await machine(id))?.root_volume_id, volume),
    ));
});
