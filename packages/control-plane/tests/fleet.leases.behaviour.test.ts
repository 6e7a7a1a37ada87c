// Tests how replicas share the hosts: who listens to which host, what happens when a replica starts, ends or dies, and
// that all replicas see what happens on every host.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { sql } from 'kysely';
import type { ControlPlane } from '../src/control-plane.ts';
import { asOwner } from '../src/db/database.ts';
import { CHANNELS, notify, openNotifications } from '../src/db/notifications.ts';
import { takeReplicaId } from '../src/hosts/replica-id.ts';
import { createLog } from '../src/log.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const WITHIN_MS = 60_000;
const FOUR = [{}, {}, {}, {}];
/** So long that nothing in a test can be due to the end of a lease. */
const LONG_LEASE = { leaseTtlMs: 600_000 };
const countsOf = (replicas: readonly ControlPlane[]) => replicas.map(({ app }) => app.hosts.listenedIds().length);
const noLocal = { hasLocalHost: false };

describe('replicas', () => {
  it('share the hosts evenly, also when another one starts', async () => {
    const bed = await startTestBed({ remotes: FOUR, config: noLocal, timing: LONG_LEASE });
    assert.deepEqual(countsOf(bed.replicas), [4]);
    await bed.addReplica();
    await until(() => countsOf(bed.replicas).join() === '2,2', 'each listens to two hosts', WITHIN_MS);
    const all = bed.replicas.flatMap(({ app }) => app.hosts.listenedIds());
    assert.equal(new Set(all).size, 4, 'no host is listened to twice');
    for (const { app } of bed.replicas) assert.equal(app.hosts.reachableIds().length, 4, 'both reach all of them');
  });

  it('that ends gives its hosts back at once', async () => {
    const bed = await startTestBed({ remotes: FOUR, config: noLocal, timing: LONG_LEASE, replicas: 2 });
    const [first, second] = bed.replicas;
    assert(first && second);
    await until(() => countsOf(bed.replicas).join() === '2,2', 'each listens to two hosts', WITHIN_MS);
    await second.close();
    await until(() => first.app.hosts.listenedIds().length === 4, 'the other one listens to all hosts', WITHIN_MS);
  });

  it('that is dead loses its hosts when its leases end, and one that lost its leases listens no more', async () => {
    const bed = await startTestBed({ remotes: FOUR, config: noLocal, timing: LONG_LEASE });
    const { app } = bed.plane;
    const dead = randomUUID();
    await sql`insert into replicas (id, alive_until) values (${dead}, now() + interval '10 minutes')`.execute(app.db);
    await sql`update hosts set listener_id = ${dead}, listener_until = now() + interval '10 minutes'`.execute(app.db);
    await until(() => app.hosts.listenedIds().length === 0, 'the streams ended', WITHIN_MS);
    await sql`update hosts set listener_until = now()`.execute(app.db);
    await sql`delete from replicas where id = ${dead}`.execute(app.db);
    await until(() => app.hosts.listenedIds().length === 4, 'it listens again', WITHIN_MS);
  });

  it('that died before the clock of the database was set back loses its hosts too', async () => {
    const bed = await startTestBed({ remotes: FOUR, config: noLocal });
    const { app } = bed.plane;
    const dead = randomUUID();
    await sql`insert into replicas (id, alive_until) values (${dead}, now() + interval '1 hour')`.execute(app.db);
    await sql`update hosts set listener_id = ${dead}, listener_until = now() + interval '1 hour'`.execute(app.db);
    const isTaken = async () => {
      const { rows } = await sql`select from hosts where listener_id = ${app.replicaId}`.execute(app.db);
      return rows.length === 4;
    };
    await until(isTaken, 'it has taken all hosts', WITHIN_MS);
    await until(() => app.hosts.listenedIds().length === 4, 'it listens to them', WITHIN_MS);
  });

  it('keeps its id after a crash, unless the process that had it still runs', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sandbar-replica-'));
    after(() => rmSync(folder, { recursive: true, force: true }));
    const log = createLog('silent');
    const take = () => takeReplicaId(join(folder, 'run', 'admin.sock'), log);
    const id = await take();
    assert.equal(await take(), id);
    writeFileSync(join(folder, 'run', 'replica.id'), `${id} ${process.ppid}`);
    assert.notEqual(await take(), id);
  });

  it('all see the end of a machine and of a job, and the result of an operation, whoever listens', async () => {
    const bed = await startTestBed({ remotes: [{}, {}], config: noLocal, replicas: 2 });
    const { api } = bed;
    await until(() => countsOf(bed.replicas).join() === '1,1', 'each listens to one host', WITHIN_MS);
    for (let round = 0; round < 4; round++) {
      for (const plane of bed.replicas) {
        const { id } = (await api('POST', '/v1/machines', { plane })).json;
        const host = bed.remotes.find(({ machines }) => machines.has(id));
        assert(host);
        const job = (await api('POST', `/v1/machines/${id}/execs`, { plane, body: { command: 'sleep' } })).json.id;
        const waits = bed.replicas.map((each) =>
          api('GET', `/v1/machines/${id}/execs/${job}?wait_ms=30000`, { plane: each }),
        );
        const asked = host.callsOf('getJob');
        await until(() => host.callsOf('getJob') >= asked + 1, 'the host was asked', WITHIN_MS);
        host.endJob(id, job, { exit_code: 7 });
        for (const { json } of await Promise.all(waits)) assert.equal(json.exit_code, 7);
        const stops = await Promise.all(
          bed.replicas.map((each) => api('POST', `/v1/machines/${id}/stop`, { plane: each })),
        );
        assert.deepEqual([...new Set(stops.map(({ json }) => json.state))], ['stopped']);
        await api('POST', `/v1/machines/${id}/start`, { plane });
        host.end(id, 'failed', 'QEMU was killed.');
        for (const each of bed.replicas) {
          const hasEnded = async () => (await api('GET', `/v1/machines/${id}`, { plane: each })).json.state === 'error';
          await until(hasEnded, 'the end is seen', WITHIN_MS);
        }
        await api('DELETE', `/v1/machines/${id}`, { plane });
      }
    }
  });
});

describe('a replica without a host of its own', () => {
  it('is ready, and runs machines on the other hosts', async () => {
    const bed = await startTestBed({ remotes: [{}], config: noLocal });
    const { host, port } = bed.plane.metricsAddress;
    const ready = await fetch(`http://${host}:${port}/readyz`);
    assert.deepEqual([ready.status, await ready.json()], [200, { ready: true, checks: { database: 'ok' } }]);
    const { json } = await bed.api('POST', '/v1/machines');
    assert(bed.remotes[0]?.machines.has(json.id));
  });

  it('knows at once that a host was added', async () => {
    const bed = await startTestBed({ config: noLocal, timing: { hostPollMs: 600_000, leaseRenewMs: 600_000 } });
    assert.equal((await bed.api('POST', '/v1/machines')).status, 503);
    await bed.addRemote();
    await until(() => bed.plane.app.hosts.reachableIds().length === 1, 'it was told', WITHIN_MS);
    await until(() => bed.plane.app.hosts.listenedIds().length === 1, 'it listens', WITHIN_MS);
  });
});

describe('a notification', () => {
  it('arrives also after the connection broke, and the break itself is told', async () => {
    const { plane, databaseUrl } = await startTestBed({ timing: { hostPollMs: 600_000 } });
    const { db, log } = plane.app;
    const got: (string | undefined)[] = [];
    const notifications = openNotifications(databaseUrl, log);
    after(() => notifications.close());
    notifications.subscribe(CHANNELS.suspicions, (payload) => got.push(payload));
    await until(() => got.length === 1, 'it is connected', WITHIN_MS);
    await notify(db, CHANNELS.suspicions, 'one');
    await until(() => got.length === 2, 'it was told', WITHIN_MS);
    await asOwner(databaseUrl, log, (owner) =>
      sql`select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'sandbar-notifications' and datname = current_database()`.execute(owner),
    );
    await until(() => got.length === 3, 'it is connected again', WITHIN_MS);
    await notify(db, CHANNELS.suspicions, 'two');
    await until(() => got.length === 4, 'it was told', WITHIN_MS);
    assert.deepEqual(got, [undefined, 'one', undefined, 'two']);
  });
});
