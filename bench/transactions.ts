// Compares two ways to run a transaction of four statements, such as those of a create, in turns on one connection pool
// each: Kysely's own transaction, which waits for each answer, and ours (control-plane/src/db/transaction.ts), which
// sends statements together when they do not depend on each other. Prints the median of each, in milliseconds.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/transactions.ts
// Creates the database `sandbar_bench_transactions` on the server of the URL and drops it at the end.
import { createRequire } from 'node:module';
import { asOwner, type Db, type Tx } from '@sandbar/control-plane/db/database.ts';
import { inTransaction } from '@sandbar/control-plane/db/transaction.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';
import { percentile } from './statistics.ts';

const require = createRequire(new URL('../packages/control-plane/package.json', import.meta.url));
const pg: typeof import('pg') = require('pg');

const DATABASE = 'sandbar_bench_transactions';
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 1000);
const WARM_UP = 100;
const serverUrl = process.env.SANDBAR_DATABASE_URL;
if (!serverUrl) throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to measure.');
const benchUrl = new URL(serverUrl);
benchUrl.pathname = `/${DATABASE}`;

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(statement);
  await client.end();
}

/** The tables are unlogged, so no commit waits for the disk, and the measured time is that of the round trips. */
const statements = (tx: Tx | Db, key: number): (() => Promise<unknown>)[] => [
  () => sql`select id from counters where id = 1 for update`.execute(tx),
  () => sql`update counters set value = value + 1 where id = 1`.execute(tx),
  () => sql`insert into entries (id, value) values (${key}, 1)`.execute(tx),
  () => sql`select value from counters where id = 1`.execute(tx),
];

await onServer(`drop database if exists ${DATABASE} with (force)`);
await onServer(`create database ${DATABASE}`);
try {
  await asOwner(benchUrl.href, createLog('silent'), async (db) => {
    await sql`create unlogged table counters (id integer primary key, value integer not null)`.execute(db);
    await sql`create unlogged table entries (id integer primary key, value integer not null)`.execute(db);
    await sql`insert into counters values (1, 0)`.execute(db);
    let key = 0;
    const ways: [name: string, run: () => Promise<unknown>, times: number[]][] = [
      [
        "Kysely's own transaction",
        () =>
          db.transaction().execute(async (tx) => {
            for (const run of statements(tx, key++)) await run();
          }),
        [],
      ],
      ['sent together', () => inTransaction(db, (tx) => Promise.all(statements(tx, key++).map((run) => run()))), []],
    ];
    for (let round = 0; round < WARM_UP + ROUNDS; round++) {
      for (const [, run, times] of ways) {
        const began = performance.now();
        await run();
        if (round >= WARM_UP) times.push(performance.now() - began);
      }
    }
    for (const [name, , times] of ways) {
      console.log(
        `${name.padEnd(26)} median ${percentile(times, 0.5).toFixed(2)} ms, p95 ${percentile(times, 0.95).toFixed(2)} ms`,
      );
    }
  });
} finally {
  await onServer(`drop database if exists ${DATABASE} with (force)`);
}
