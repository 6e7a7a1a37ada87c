// Tests that housekeeping removes old rows however many there are, that one failing sweep does not stop the others, and
// that one host's failure does not stop the update of another host's facts.
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { asOwner } from '../src/db/database.ts';
import type { HostClient } from '../src/hosts/client.ts';
import { factComparison } from '../src/reconcilers/host-facts.ts';
import { keepHouse } from '../src/reconcilers/housekeeping.ts';
import { createRounds } from '../src/reconcilers/rounds.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { app } = bed.plane;
// Wait for the housekeeping that runs at the start, so that it does not delete rows of the tests.
await bed.plane.reconciler.runOnce();
const { db } = app;
/** The most rows that one DELETE statement of the housekeeping may remove. */
const BATCH = 1000;
const ROWS = 2 * BATCH + 1;
const TABLES = ['machines', 'execs', 'idempotency_keys', 'rate_buckets', 'sessions', 'verifications'] as const;

/** Runs statements as the owner of the tables, who may do more than the application's role. */
const asAdmin = (...statements: string[]) =>
  asOwner(bed.databaseUrl, app.log, async (owner) => {
    for (const statement of statements) await sql.raw(statement).execute(owner);
  });
const countOf = async (table: (typeof TABLES)[number]) =>
  (
    await db
      .selectFrom(table)
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow()
  ).count;

const { id: kept } = (await bed.api('POST', '/v1/machines')).json;
await asAdmin(
  'create table deletes (of text not null, rows integer not null)',
  'grant select, insert on deletes to sandbar_app',
  `create function note_delete() returns trigger language plpgsql as $$ begin
     insert into deletes select tg_table_name, count(*) from gone; return null;
   end $$`,
  ...TABLES.map(
    (table) => `create trigger note after delete on ${table} referencing old table as gone
      for each statement execute function note_delete()`,
  ),
);

/** Fills every table with old rows, more than two DELETE statements may remove. */
const fill = () =>
  asAdmin(
    'truncate deletes',
    // Copies of the kept machine that differ from it only in being destroyed 400 days ago.
    `insert into machines select (jsonb_populate_record(m, jsonb_build_object('id', gen_random_uuid(), 'state', 'destroyed',
       'desired', 'destroyed', 'destroyed_at', now() - interval '400 days', 'claim_token', null))).*
     from machines m, generate_series(1, ${ROWS}) where m.id = '${kept}'`,
    `insert into execs (machine_id, id, account_id, status, timeout_sec)
     select id, gen_random_uuid(), account_id, 'exited', 1 from machines where state = 'destroyed'`,
    `insert into idempotency_keys (account_id, key, fingerprint, machine_id, created_at)
     select '${bed.accountId}', n, '', '${kept}', now() - interval '25 hours' from generate_series(1, ${ROWS}) n`,
    `insert into rate_buckets select 'old ' || n, now() - interval '1 second' from generate_series(1, ${ROWS}) n`,
    `insert into sessions (id, account_id, token_hash, expires_at)
     select gen_random_uuid(), '${bed.accountId}', n, now() - interval '1 second' from generate_series(1, ${ROWS}) n`,
    `insert into verifications (id, identifier, value, expires_at)
     select gen_random_uuid(), n, n, now() - interval '1 second' from generate_series(1, ${ROWS}) n`,
  );

describe('housekeeping', () => {
  beforeEach(async () => {
    await asAdmin(
      `delete from machines where state = 'destroyed'`,
      ...TABLES.slice(1).map((table) => `delete from ${table}`),
    );
    await fill();
  });

  it('removes any number of old rows, a bounded number in each statement', async () => {
    assert.equal(await keepHouse(app), true);
    const counts = await Promise.all(TABLES.map(countOf));
    assert.deepEqual(counts, [1, 0, 0, 0, 0, 0], 'only the machine that lives is left');
    const { rows } = await sql<{ of: string; rows: number }>`select * from deletes`.execute(db);
    for (const table of TABLES) {
      const sizes = rows.filter((statement) => statement.of === table).map((statement) => statement.rows);
      assert(Math.max(...sizes) <= BATCH, `${table}: statements of ${sizes.join(', ')} rows`);
      assert.equal(
        sizes.reduce((sum, size) => sum + size, 0),
        ROWS,
        table,
      );
    }
  });

  it('goes on after a sweep that fails, and logs it', async () => {
    await asAdmin(
      `create function refuse() returns trigger language plpgsql as $$ begin raise 'not this one'; end $$`,
      'create trigger refuse before delete on machines for each row execute function refuse()',
    );
    try {
      assert.equal(await keepHouse(app), false);
    } finally {
      await asAdmin('drop function refuse cascade');
    }
    assert.equal(await countOf('machines'), ROWS + 1);
    for (const table of TABLES.slice(1)) assert.equal(await countOf(table), 0, table);
    assert.match(bed.logged(), /"sweep":"destroyed machines"/);
  });

  it('does what the role of the application may when the owner of the tables is not reached', async () => {
    const config = { ...app.config, databaseUrl: 'postgres://postgres@127.0.0.1:1/postgres' };
    assert.equal(await keepHouse({ ...app, config }), false);
    assert.equal(await countOf('machines'), 1);
    assert.equal(await countOf('sessions'), 0);
  });

  it('stops between two statements when the service ends', async () => {
    const closing = new AbortController();
    const stopping = db.withPlugin({
      transformQuery: ({ node }) => node,
      transformResult: async ({ result }) => {
        closing.abort();
        return result;
      },
    });
    await keepHouse({ ...app, db: stopping, closing: closing.signal });
    assert.equal(await countOf('execs'), ROWS - BATCH, 'one statement was run');
    for (const table of ['machines', 'idempotency_keys', 'rate_buckets', 'sessions'] as const) {
      assert((await countOf(table)) >= ROWS, table);
    }
  });
});

describe('facts of the hosts', () => {
  it('are recorded of every host that answers, also after one that does not', async () => {
    const { local } = app.hosts;
    assert(local);
    const info = await local.info();
    const [broken, works] = ['019b0000-0000-7000-8000-00000000000a', '019b0000-0000-7000-8000-00000000000b'];
    const client = (hostId: string): HostClient => ({
      ...local,
      info: async () => {
        if (hostId === broken) throw new Error('it fell over');
        return { ...info, host_id: hostId, version: 'new' };
      },
    });
    const hosts = { ...app.hosts, client, listenedIds: () => [broken, works] };
    const own = { ...app, hosts };
    await createRounds(own, [factComparison(own)]).runOnce();
    const rows = await db.selectFrom('hosts').select('id').where('version', '=', 'new').execute();
    assert.deepEqual(rows, [{ id: works }]);
    assert.match(bed.logged(), /it fell over/);
  });
});
