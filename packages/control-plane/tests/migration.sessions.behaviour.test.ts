// Tests the migration that adds operators, while an older replica still answers requests with sessions.
import assert from 'node:assert/strict';
import { after, it } from 'node:test';
import { Migrator } from 'kysely/migration';
import pg from 'pg';
import { asOwner } from '../src/db/database.ts';
import { MIGRATIONS } from '../src/db/migrate.ts';
import { createLog } from '../src/log.ts';
import { createDatabase, endSharedPostgres, until } from './support/postgres.ts';

after(endSharedPostgres);

it('the migration that adds operators cannot deadlock with a request that finds its session, then its account', async () => {
  const databaseUrl = await createDatabase();
  const request = new pg.Client({ connectionString: databaseUrl });
  await asOwner(databaseUrl, createLog('silent'), async (owner) => {
    const migrator = new Migrator({ db: owner, provider: { getMigrations: async () => MIGRATIONS } });
    assert.equal((await migrator.migrateTo('013-billing')).error, undefined);
    await request.connect();
    try {
      await request.query('begin');
      await request.query('select from sessions');
      const migration = migrator.migrateTo('014-operators');
      const isWaiting = async () =>
        (await request.query("select from pg_locks where not granted and relation = 'sessions'::regclass")).rowCount;
      await until(async () => Boolean(await isWaiting()), 'the migration waits for the table of sessions', 60_000);
      await request.query('select from accounts');
      await request.query('commit');
      assert.equal((await migration).error, undefined);
    } finally {
      await request.end();
    }
  });
});
