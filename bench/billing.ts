// Measures how long a usage query over a month of 10,000 machines takes, by every grouping, as JSON and as CSV. It
// times whole HTTP requests to a server in this process. It also measures one round of metering.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/billing.ts      (BENCH_MACHINES, default 10000)
// Creates the database `sandbar_bench_billing` on the server of the URL, and drops it at the end.
//
// 2 cores, 2026-11-23, PostgreSQL 18 without fsync, median and p95 of 15 in ms; the aim is 300:
//   machines that ran the whole month:  by kind 29, 34; day 155, 161; metadata 38, 41; resource 144, 173 (CSV 254, 357)
//   machines of 77 minutes each:        by kind 31, 45; day 43, 56; metadata 29, 37; resource 147, 191 (CSV 236, 337)
//   a round of metering of 20,000 running machines in 101 accounts: 287 ms; the aim is 5 s for 10,000
import { randomUUID } from 'node:crypto';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import { insertKey } from '@sandbar/control-plane/api-keys/store.ts';
import type { App } from '@sandbar/control-plane/app.ts';
import { CredentialWatch } from '@sandbar/control-plane/auth/credential-watch.ts';
import { chargeDueAccounts } from '@sandbar/control-plane/billing/round.ts';
import { readConfig } from '@sandbar/control-plane/config.ts';
import { asOwner, type Db, openDatabase } from '@sandbar/control-plane/db/database.ts';
import { migrate } from '@sandbar/control-plane/db/migrate.ts';
import { createFleet } from '@sandbar/control-plane/fleet/fleet.ts';
import { createHostClient } from '@sandbar/control-plane/hosts/client.ts';
import { HostTable } from '@sandbar/control-plane/hosts/host-table.ts';
import { createHosts } from '@sandbar/control-plane/hosts/hosts.ts';
import { createPresence } from '@sandbar/control-plane/hosts/presence.ts';
import { buildServer } from '@sandbar/control-plane/http/server.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { createMetrics } from '@sandbar/control-plane/metrics/metrics.ts';
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
import { sql } from 'kysely';
import pg from 'pg';
import { Registry } from 'prom-client';
import { measure, summarize } from './statistics.ts';

const MACHINES = Number(process.env.BENCH_MACHINES ?? 10_000);
const ROUNDS = 15;
const WARM_UP = 3;
/** How many further accounts the round of metering charges. Together they have MACHINES machines. */
const ACCOUNTS = 100;
const DATABASE = 'sandbar_bench_billing';
const MONTH = { from: '2026-10-01T00:00:00Z', to: '2026-11-01T00:00:00Z' };
const serverUrl = process.env.SANDBAR_DATABASE_URL;
if (!serverUrl) throw new Error('Set SANDBAR_DATABASE_URL to the PostgreSQL server to measure.');
const benchUrl = new URL(serverUrl);
benchUrl.pathname = `/${DATABASE}`;
const log = createLog('silent');

async function onServer(...statements: string[]): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}

/**
 * Makes a prepaid account with machines of 2 vCPUs, 2 GiB and 10 GiB in 20 teams. Machine n runs from `start` to `end`,
 * which are SQL expressions over n.
 */
async function makeAccount(db: Db, name: string, machines: number, start: string, end: string) {
  const id = await insertAccount(db, { email: `${name}@example.test`, tier: 'enterprise', billingMode: 'prepaid' });
  const chargedUntil = sql<Date>`timestamptz '2026-11-01Z'`;
  await db.updateTable('accounts').set({ charged_until: chargedUntil }).where('id', '=', id).execute();
  await sql`
    insert into meters (account_id, resource_kind, resource_id, vcpus, memory_mb, storage_gb, price_id, metadata,
      started_at, ended_at)
    select ${id}, 'machine', gen_random_uuid(), 2, 2048, 10, 1, jsonb_build_object('team', 'team ' || n % 20),
      ${sql.raw(start)}, ${sql.raw(end)}
    from generate_series(1, ${machines}) as n`.execute(db);
  return insertKey(db, id, 'read', 'bench');
}

async function startServer(db: Db): Promise<{ app: App; address: string; close: () => Promise<void> }> {
  const config = readConfig(
    {
      SANDBAR_HOME: '/nonexistent',
      SANDBAR_DATABASE_URL: benchUrl.href,
      SANDBAR_SECRET: 'nothing is ever signed with this one',
    },
    false,
  );
  const hostClient = createHostClient({ socketPath: config.hostAgentSocket });
  const closing = new AbortController().signal;
  const credentials = new CredentialWatch(db, log, closing);
  const hosts = createHosts(db, { local: hostClient, clientOf: () => hostClient }, config.timing.hostSeenMs);
  const replicaId = randomUUID();
  const presence = createPresence(db, replicaId, config.timing.hostSeenMs, () => undefined);
  const fleet = createFleet(config, db);
  const hostTable = new HostTable(db, config.timing.hostFactsMs);
  const own = {
    hosts,
    hostTable,
    fleet,
    objects: undefined,
    presence,
    replicaId,
    ...{ draining: closing, closing, cutoff: closing },
    reconcileSoon: () => undefined,
    compareSoon: () => undefined,
  };
  const metrics = createMetrics(new Registry());
  const app: App = { config, log, metrics, tracing: NO_TRACING, db, credentials, ...own };
  const server = await buildServer(app);
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  const close = async () => {
    await server.close();
    hostClient.close();
  };
  return { app, address, close };
}

async function measureUsage(address: string, key: string, name: string): Promise<void> {
  for (const [groupBy, accept] of [
    ['kind', 'application/json'],
    ['day', 'application/json'],
    ['metadata.team', 'application/json'],
    ['resource', 'application/json'],
    ['resource', 'text/csv'],
  ] as const) {
    const query = new URLSearchParams({ ...MONTH, group_by: groupBy });
    let bytes = 0;
    const request = async () => {
      const headers = { authorization: `Bearer ${key}`, accept };
      const response = await fetch(`${address}/v1/billing/usage?${query}`, { headers });
      const text = await response.text();
      if (response.status !== 200 || text.length < 300) throw new Error(`${response.status} ${text}`);
      bytes = text.length;
    };
    await measure(WARM_UP, request);
    const times = await measure(ROUNDS, request);
    console.log(`${name}, by ${groupBy}, ${accept}, ${(bytes / 1024).toFixed(0)} KiB, ms: ${summarize(times)}`);
  }
}

type Keys = { whole: string; short: string };

/** Fills the database. Returns the keys of the two accounts that are queried. */
async function generate(db: Db): Promise<Keys> {
  const month = `timestamptz '2026-10-01Z'`;
  const whole = await makeAccount(db, 'whole', MACHINES, `${month} - n * interval '1.234 seconds'`, `'infinity'`);
  const shortStart = `${month} + n * interval '267.8 seconds' * 10000 / ${MACHINES}`;
  const short = await makeAccount(db, 'short', MACHINES, shortStart, `${shortStart} + interval '77.7 minutes'`);
  for (let account = 0; account < ACCOUNTS; account++) {
    const machines = Math.ceil(MACHINES / ACCOUNTS);
    await makeAccount(db, `a${account}`, machines, `${month} + n * interval '1.234 seconds'`, `'infinity'`);
  }
  await sql`vacuum analyze meters, accounts`.execute(db);
  return { whole, short };
}

async function main(db: Db, { whole, short }: Keys): Promise<void> {
  const { app, address, close } = await startServer(db);
  try {
    await measureUsage(address, whole, `${MACHINES} machines that ran the whole month`);
    await measureUsage(address, short, `${MACHINES} machines of 77 minutes`);
    // All accounts are due: the account with all machines, and the many accounts with as many machines together.
    const begin = performance.now();
    const accounts = await chargeDueAccounts(app);
    const ms = (performance.now() - begin).toFixed(0);
    console.log(`a round of metering of ${accounts} accounts with ${2 * MACHINES} running machines: ${ms} ms`);
  } finally {
    await close();
  }
}

await onServer(`drop database if exists ${DATABASE}`, `create database ${DATABASE}`);
try {
  const keys = await asOwner(benchUrl.href, log, async (owner) => {
    await migrate(owner);
    return generate(owner);
  });
  const db = openDatabase(benchUrl.href, log);
  await main(db, keys).finally(() => db.destroy());
} finally {
  await onServer(`drop database ${DATABASE}`);
}
