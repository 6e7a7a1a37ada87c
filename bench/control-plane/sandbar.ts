// Runs the control plane that bench/control-plane.ts measures, and counts its database statements. On each message from
// the parent process it sends back the counts since the last message.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import { insertKey } from '@sandbar/control-plane/api-keys/store.ts';
import { readConfig } from '@sandbar/control-plane/config.ts';
import { startControlPlane } from '@sandbar/control-plane/control-plane.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';
import type { Client } from 'pg';

const require = createRequire(new URL('../../packages/control-plane/package.json', import.meta.url));
const pg: { Client: { prototype: Client } } = require('pg');

let texts: string[] = [];
const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
pg.Client.prototype.query = function (this: Client, ...args: unknown[]) {
  const [first] = args;
  texts.push(typeof first === 'string' ? first : ((first as { text?: string }).text ?? ''));
  return Reflect.apply(query, this, args);
} as Client['query'];

const home = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
const env = { SANDBAR_HOME: home, SANDBAR_SECRET: randomBytes(32).toString('hex') };
const config = readConfig({ ...process.env, ...env }, false);
config.listen.port = 0;
config.metricsListen.port = 0;
config.hostAgentSocket = process.env.BENCH_HOST_SOCKET ?? '';
const fast = { perSec: 100_000, burst: 100_000 };
config.rates = { ...config.rates, mutating: fast, exec: fast };
// Effectively turn off the timers of the reconciler, because its statements would be counted too, and the time limit
// for events of the host, because the fake host sends no heartbeat.
config.timing = { ...config.timing, reconcileMs: 3_600_000, eventSilenceMs: 3_600_000 };
// The same for the leases on hosts.
config.timing = { ...config.timing, leaseTtlMs: 3_600_000, leaseRenewMs: 3_000_000, hostPollMs: 3_600_000 };
config.timing.hostSeenMs = 3_600_000;
// Format the log as the service does, because that takes time too, but discard the lines.
const plane = await startControlPlane(config, createLog('info', { write: () => undefined }));
const { db } = plane.app;
while (plane.app.hosts.reachableIds().length === 0) await delay(20);
await plane.reconciler.runOnce();
const accountId = await insertAccount(db, { email: 'bench@example.test', tier: 'enterprise' });
const most = 1_000_000_000;
await sql`update accounts set limit_machines = ${most}, limit_vcpus = ${most}, limit_memory_mb = ${most},
  limit_storage_gb = ${most} where id = ${accountId}`.execute(db);
const apiKey = await insertKey(db, accountId, 'full', 'bench');

/** How often PostgreSQL has synced its write-ahead log so far, by all processes. */
async function countSyncs(): Promise<number> {
  const { rows } = await sql<{ syncs: number }>`
    select coalesce(sum(fsyncs), 0)::bigint as syncs from pg_stat_io where object = 'wal'`.execute(db);
  return rows[0]?.syncs ?? 0;
}

let syncs = await countSyncs();
process.on('message', async () => {
  const said = texts;
  // A PostgreSQL process publishes its statistics only after it was idle for a second.
  await delay(1_500);
  const now = await countSyncs();
  const { user, system } = process.cpuUsage();
  process.send?.({
    statements: said.length,
    commits: said.filter((text) => /^commit/i.test(text)).length,
    syncs: now - syncs,
    cpuMs: (user + system) / 1000,
    texts: said.slice(0, 40),
  });
  syncs = now;
  texts = [];
});
process.on('SIGTERM', async () => {
  await plane.close();
  rmSync(home, { recursive: true, force: true });
  process.exit(0);
});
process.send?.({ baseUrl: `http://127.0.0.1:${plane.address.port}`, apiKey });
