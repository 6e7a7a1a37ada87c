// Measures what a replica costs while nothing happens: its processor time and its memory, with 1,000 hosts that have
// 100,000 running machines. The hosts are fakes in another process, reached over Unix sockets without TLS.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/fleet/idle.ts
//   BENCH_HOSTS (1000), BENCH_MACHINES of each host (100), BENCH_WARM_SEC (90), BENCH_SEC (60)
// Creates the database `sandbar_bench_idle` on the server of the URL, and drops it at the end.
//
// 2 cores, shared with other work, 2026-11-23: 3.8 % of a core (the aim is 5), 427 MB (the aim is 300), of which 215 MB
// are there before the first host.
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import { readConfig } from '@sandbar/control-plane/config.ts';
import { startControlPlane } from '@sandbar/control-plane/control-plane.ts';
import type { Db } from '@sandbar/control-plane/db/database.ts';
import { CHANNELS, notify } from '@sandbar/control-plane/db/notifications.ts';
import { createHostClient } from '@sandbar/control-plane/hosts/client.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';
import pg from 'pg';

const numberOf = (name: string, fallback: number) => Number(process.env[name] ?? fallback);
const hostCount = numberOf('BENCH_HOSTS', 1_000);
const machinesOfHost = numberOf('BENCH_MACHINES', 100);
const warmSec = numberOf('BENCH_WARM_SEC', 90);
const measuredSec = numberOf('BENCH_SEC', 60);

const NAME = 'sandbar_bench_idle';
const adminUrl = process.env.SANDBAR_DATABASE_URL ?? '';
const benchUrl = new URL(adminUrl);
benchUrl.pathname = `/${NAME}`;

async function onServer(...statements: string[]): Promise<void> {
  const client = new pg.Client({ connectionString: adminUrl });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}

/** Inserts the rows of the hosts and of their machines, with the ids of ids.ts. */
async function insertFleet(db: Db): Promise<void> {
  const accountId = await insertAccount(db, { email: 'bench@example.test', tier: 'enterprise' });
  const id = (kind: number, number: string) =>
    sql.raw(`('019b0000-0000-7000-800${kind}-' || lpad(to_hex(${number}), 12, '0'))::uuid`);
  await sql`
    insert into hosts (id, name, address, version, boot_id, isolation, network, subnet, cpus, memory_mb, images)
    select ${id(1, 'n')}, 'host-' || n, 'host-' || n || ':7072', '0', 'boot-1', 'kvm', 'user', '10.83.0.0/16', 64,
      1048576, '[]'
    from generate_series(0, ${hostCount}::int - 1) as n`.execute(db);
  const batch = 10_000;
  for (let first = 0; first < hostCount * machinesOfHost; first += batch) {
    const last = Math.min(first + batch, hostCount * machinesOfHost) - 1;
    await sql`
      insert into machines (id, account_id, host_id, name, state, generation, vcpus, memory_mb, rootfs_size_gb, stack,
        private_ip, metadata, isolation, on_expiry, started_at)
      select ${id(2, 'n')}, ${accountId}, ${id(1, `n / ${machinesOfHost}`)}, 'idle', 'running', 1, 1, 512, 10, 'base',
        '10.83.0.4', '{}', 'kvm', 'destroy', now()
      from generate_series(${first}::int, ${last}::int) as n`.execute(db);
  }
}

const folder = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
const hosts = fork(new URL('./hosts.ts', import.meta.url), [folder, `${hostCount}`, `${machinesOfHost}`]);
await once(hosts, 'message');
await onServer(`drop database if exists ${NAME}`, `create database ${NAME}`);
const config = readConfig(
  {
    ...{ SANDBAR_HOME: folder, SANDBAR_DATABASE_URL: benchUrl.href, SANDBAR_LOCAL_HOST: '0' },
    SANDBAR_SECRET: randomBytes(32).toString('hex'),
  },
  false,
);
config.listen.port = 0;
config.metricsListen.port = 0;
const plane = await startControlPlane(config, createLog('info', { write: () => undefined }), {
  clientOf: ({ address }) => createHostClient({ socketPath: join(folder, address.split(':')[0] ?? '') }),
});
const { app } = plane;
await insertFleet(app.db);
await sql`analyze machines, hosts`.execute(app.db).catch(() => undefined);

const began = performance.now();
await notify(app.db, CHANNELS.hosts);
await notify(app.db, CHANNELS.leases);
while (app.hosts.listenedIds().length < hostCount) await delay(100);
console.log(`listens to ${hostCount} hosts after ${((performance.now() - began) / 1000).toFixed(1)} s`);
await delay(warmSec * 1_000);
const before = process.cpuUsage();
const from = performance.now();
await delay(measuredSec * 1_000);
const { user, system } = process.cpuUsage(before);
const elapsedMs = performance.now() - from;
const percent = ((user + system) / 1_000 / elapsedMs) * 100;
const rssMb = process.memoryUsage.rss() / 1_048_576;
console.log(`idle: ${percent.toFixed(1)} % of a core, ${rssMb.toFixed(0)} MB`);
await plane.close();
hosts.disconnect();
await onServer(`drop database ${NAME}`);
rmSync(folder, { recursive: true, force: true });
