// Measures what metering costs, on a real PostgreSQL with a fake host. First it times a round that charges 10,000
// running machines, belonging to 1, 100 or 10,000 accounts. Then it times create and stop, in turns for a prepaid
// and for an unmetered account, with no other machine and with 100 other running machines in the account.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/metering.ts
// Creates databases `sandbar_bench_…` on the server of the URL and drops them at the end. BENCH_SAMPLES: creates and
// stops of each account (default 400).
import { createRequire } from 'node:module';
import type { App } from '@sandbar/control-plane/app.ts';
import { chargeDueAccounts } from '@sandbar/control-plane/billing/round.ts';
import { asOwner, type Db, openDatabase } from '@sandbar/control-plane/db/database.ts';
import { migrate } from '@sandbar/control-plane/db/migrate.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';
import { prepareTarget, type Target } from './attacks/target.ts';
import { measure, percentile, summarize } from './statistics.ts';

const require = createRequire(new URL('../packages/control-plane/package.json', import.meta.url));
const pg: typeof import('pg') = require('pg');

const MACHINES = 10_000;
const ACCOUNTS = [1, 100, 10_000];
const ROUNDS = 10;
const SAMPLES = Number(process.env.BENCH_SAMPLES ?? 400);
const OTHERS = 100;
const DATABASE = 'sandbar_bench_rounds';
const serverUrl = process.env.SANDBAR_DATABASE_URL;
if (!serverUrl) throw new Error('Set SANDBAR_DATABASE_URL to the PostgreSQL server to measure.');
const roundsUrl = new URL(serverUrl);
roundsUrl.pathname = `/${DATABASE}`;
const log = createLog('silent');

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(statement);
  await client.end();
}

/** Makes accounts with the open meters of all machines, which began an hour ago. */
async function fill(owner: Db, accounts: number): Promise<void> {
  await sql`truncate meters, ledger, accounts cascade`.execute(owner);
  await sql`
    insert into accounts (id, email, tier, billing_mode, balance_micros)
    select md5('account ' || n)::uuid, n || '@example.test', 'enterprise', 'prepaid', 1000000000000
    from generate_series(0, ${accounts}::int - 1) n`.execute(owner);
  await sql`
    insert into meters (account_id, resource_kind, resource_id, vcpus, memory_mb, storage_gb, price_id, started_at)
    select md5('account ' || n % ${accounts}::int)::uuid, 'machine', gen_random_uuid(), 1 + n % 4, 512 * (1 + n % 8),
      10, 1, date_trunc('milliseconds', now()) - interval '1 hour'
    from generate_series(1, ${MACHINES}::int) n`.execute(owner);
  await sql`analyze meters, accounts`.execute(owner);
}

async function measureRounds(): Promise<void> {
  await onServer(`drop database if exists ${DATABASE} with (force)`);
  await onServer(`create database ${DATABASE}`);
  await asOwner(roundsUrl.href, log, migrate);
  const db = openDatabase(roundsUrl.href, log);
  const app = { db, config: { timing: { chargeMs: 0 } }, closing: new AbortController().signal } as unknown as App;
  for (const accounts of ACCOUNTS) {
    await asOwner(roundsUrl.href, log, (owner) => fill(owner, accounts));
    const times = await measure(ROUNDS, async () => {
      const charged = await chargeDueAccounts(app);
      if (charged < accounts) throw new Error(`A round charged ${charged} of ${accounts} accounts.`);
    });
    console.log(`a round of ${MACHINES} machines of ${accounts} accounts, ms: ${summarize(times)}`);
  }
  await db.destroy();
  await onServer(`drop database if exists ${DATABASE} with (force)`);
}

type Times = { create: number[]; stop: number[] };

async function sample({ sandbar }: Awaited<ReturnType<Target['newAccount']>>, times: Times): Promise<void> {
  const began = performance.now();
  const { id } = await sandbar.machines.create({ memory_mb: 128 });
  const created = performance.now();
  await sandbar.machines.stop(id);
  times.stop.push(performance.now() - created);
  times.create.push(created - began);
  await sandbar.machines.destroy(id);
}

async function measureRequests(): Promise<void> {
  const target = await prepareTarget('sandbar_bench_metering');
  try {
    await target.start();
    for (const others of [0, OTHERS]) {
      const accounts = await Promise.all(
        (['prepaid', 'unmetered'] as const).map(async (mode) => ({
          mode,
          client: await target.newAccount(`${mode}${others}`, mode),
          times: { create: [], stop: [] } as Times,
        })),
      );
      for (const { client } of accounts) {
        for (let n = 0; n < others; n++) await client.sandbar.machines.create({ memory_mb: 128 });
      }
      for (let n = 0; n < SAMPLES; n++) {
        for (const { client, times } of n % 2 ? accounts : accounts.toReversed()) await sample(client, times);
      }
      for (const step of ['create', 'stop'] as const) {
        const medians = accounts.map(({ times }) => percentile(times[step], 0.5));
        const shown = accounts.map(({ mode, times }) => `${mode} ${summarize(times[step])}`).join('; ');
        const ratio = ((medians[0] ?? 0) / (medians[1] ?? 0)).toFixed(3);
        console.log(`${step} beside ${others} machines, ms: ${shown}; prepaid / unmetered ${ratio}`);
      }
    }
  } finally {
    await target.close();
  }
}

await measureRounds();
await measureRequests();
