// Measures how long PostgreSQL takes to read the activity feed of an account with five million entries: the first page,
// a late page, filtered pages and searches. The times are the planning and execution times that PostgreSQL reports for
// the statement of the API.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/activity.ts      (BENCH_ENTRIES, default 5000000)
// Creates the database `sandbar_bench_activity` on the server of the URL and keeps it for the next run.
import { randomUUID } from 'node:crypto';
import { type FeedFilter, selectFeed } from '@sandbar/control-plane/activity/list.ts';
import { createMonth, monthOf } from '@sandbar/control-plane/activity/partitions.ts';
import { readSearch } from '@sandbar/control-plane/activity/search.ts';
import { asOwner, type Db, openDatabase } from '@sandbar/control-plane/db/database.ts';
import { migrate } from '@sandbar/control-plane/db/migrate.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { type Position, pageOf } from '@sandbar/control-plane/paging.ts';
import pg from 'pg';
import { percentile, summarize } from './statistics.ts';

const ENTRIES = Number(process.env.BENCH_ENTRIES ?? 5_000_000);
const ROUNDS = 30;
const MONTHS = 12;
const PAGE_SIZE = 50;
const DATABASE = 'sandbar_bench_activity';
const serverUrl = process.env.SANDBAR_DATABASE_URL;
if (!serverUrl) throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to measure.');
const benchUrl = new URL(serverUrl);
benchUrl.pathname = `/${DATABASE}`;
const url = benchUrl.href;
const log = createLog('silent');

async function withClient<T>(
  connectionString: string | undefined,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Creates the database, its tables and the monthly partitions of the feed, as the service does. */
async function prepare(): Promise<void> {
  await withClient(serverUrl, async (client) => {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (rowCount === 0) await client.query(`create database ${DATABASE}`);
  });
  await asOwner(url, log, async (owner) => {
    await migrate(owner);
    for (let offset = 0; offset <= MONTHS; offset++) {
      await createMonth(owner, monthOf(new Date(), -offset)).catch((error: { code?: string }) => {
        const isThere = error.code === '42P07';
        if (!isThere) throw error;
      });
    }
  });
}

/**
 * Fills the feed with ENTRIES entries of one account, spread over a year and 50 000 machines: 1 in 20 about a machine,
 * 1 in 1000 about a volume, the rest about jobs. Does nothing when these entries exist. Returns the id of the account.
 */
async function generate(client: pg.Client): Promise<string> {
  const known = await client.query(`select account_id from activity limit 1`);
  const { rows } = await client.query('select count(*) from activity');
  if (Number(rows[0].count) === ENTRIES) return known.rows[0].account_id;
  console.log(`making ${ENTRIES} entries …`);
  const accountId = randomUUID();
  await client.query('truncate activity');
  await client.query(
    `insert into activity
     select $1, date_trunc('milliseconds', now() - interval '360 days' * (($2::int - n)::float8 / $2::int)),
       gen_random_uuid(),
       case when n % 20 = 0 then 'machine' when n % 1000 = 7 then 'volume' else 'exec' end,
       case when n % 20 = 0 then (array['machine.created', 'machine.started', 'machine.stopped', 'machine.destroyed'])
         [1 + n / 20 % 4] when n % 1000 = 7 then 'volume.created' else 'exec' end,
       case when n % 50000 = 0 then 'system:spend_guard' else 'user' end,
       md5('machine ' || n % 50000)::uuid::text,
       case when n % 1000 = 7 then jsonb_build_object('volume_id', md5('volume ' || n)::uuid, 'size_gb', 5)
         else '{"exit_code": 0, "timeout_sec": 3600}' end
     from generate_series(1, $2::int) n`,
    [accountId, ENTRIES],
  );
  await client.query('vacuum analyze activity');
  return accountId;
}

/** The cursor position after `share` (0 to 1) of the feed, counted by time from the newest entry. */
async function positionAt(client: pg.Client, share: number): Promise<{ createdAt: Date; id: string }> {
  const { rows } = await client.query(
    `with span as (select min(created_at) as a, max(created_at) as b from activity)
     select created_at, id from activity, span where created_at <= b - (b - a) * $1::float8
     order by created_at desc, id desc limit 1`,
    [share],
  );
  return { createdAt: rows[0].created_at, id: rows[0].id };
}

type Page = FeedFilter & { after?: Position };
type Times = { whole: number[]; execution: number[] };

async function explain(client: pg.Client, db: Db, accountId: string, page: Page): Promise<Times> {
  const { after, ...filter } = page;
  const { sql, parameters } = pageOf(selectFeed(db, accountId, filter), { after, pageSize: PAGE_SIZE }).compile();
  const times: Times = { whole: [], execution: [] };
  for (let round = 0; round < ROUNDS; round++) {
    const { rows } = await client.query(`explain (analyze, format json) ${sql}`, [...parameters]);
    const [plan] = rows[0]['QUERY PLAN'];
    if (round === 0 && process.env.BENCH_PLANS) console.log(JSON.stringify(plan, undefined, 1));
    times.whole.push(plan['Planning Time'] + plan['Execution Time']);
    times.execution.push(plan['Execution Time']);
  }
  return times;
}

async function main(client: pg.Client): Promise<void> {
  const accountId = await generate(client);
  const { rows } = await client.query(
    `select md5('machine 77')::uuid::text as machine, md5('volume 1007')::uuid::text as volume`,
  );
  const { machine, volume } = rows[0] as { machine: string; volume: string };
  const [middle, earlier] = [await positionAt(client, 0.4), await positionAt(client, 0.5)];
  const search = (q: string) => ({ search: readSearch(q) });
  const pages: [name: string, page: Page][] = [
    ['first page', {}],
    ['page after 4/5 of all', { after: await positionAt(client, 0.8) }],
    ['category page', { category: 'machine' }],
    ['from/to page', { from: earlier.createdAt, to: middle.createdAt }],
    ["a machine's page", { machineId: machine }],
    ['q: machine id (100 entries)', search(machine)],
    ['q: part of a volume id (1 entry)', search(volume.slice(0, 23))],
    ['q: actor (100 entries)', search('spend_guard')],
    ['q: id that is not there', search(randomUUID())],
    ['q: action (1 in 80)', search('machine.destroyed')],
  ];
  const db = openDatabase(url, log);
  let unit = Number.NaN;
  for (const [name, page] of pages) {
    const { whole, execution } = await explain(client, db, accountId, page);
    const median = percentile(whole, 0.5);
    if (Number.isNaN(unit)) unit = median;
    console.log(
      `${name}, ms: ${summarize(whole)}; ${(median / unit).toFixed(2)} of the first page; execution alone ${percentile(execution, 0.5).toFixed(2)}`,
    );
  }
  await db.destroy();
}

await prepare();
await withClient(url, main);
