// Tests of the application's database role on an operator's own PostgreSQL, where the service does not connect as a
// superuser.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import pg from 'pg';
import { keepMonths } from '../src/activity/partitions.ts';
import { asOwner, openDatabase } from '../src/db/database.ts';
import { migrate } from '../src/db/migrate.ts';
import { createLog } from '../src/log.ts';
import { startPostgres } from './support/postgres.ts';

const log = createLog('silent');

/**
 * Starts a separate server, because roles belong to the whole server. Returns a database owned by a login role with
 * these rights.
 */
async function ownedDatabase(rights: string) {
  const server = await startPostgres();
  const admin = async (...statements: string[]) => {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    for (const statement of statements) await client.query(statement);
    await client.end();
  };
  await admin(`create role sandbar_owner login ${rights}`, 'create database sandbar owner sandbar_owner');
  const url = new URL(server.url);
  url.username = 'sandbar_owner';
  url.pathname = '/sandbar';
  return { url: url.href, admin };
}

async function checkWorks(url: string): Promise<void> {
  await asOwner(url, log, async (owner) => {
    await migrate(owner);
    await keepMonths(owner, 365);
  });
  const db = openDatabase(url, log);
  const { rows } = await sql<{ role: string }>`select current_user as role`.execute(db);
  assert.equal(rows[0]?.role, 'sandbar_app');
  await db.selectFrom('accounts').selectAll().execute();
  await assert.rejects(sql`delete from activity`.execute(db), /permission denied/);
  await db.destroy();
}

describe('the role of the application', () => {
  it('is made by an owner that may make roles', async () => {
    await checkWorks((await ownedDatabase('createrole')).url);
  });

  it('is asked for, with what to run, where the owner may not; then it works', async () => {
    const { url, admin } = await ownedDatabase('');
    await assert.rejects(asOwner(url, log, migrate), (error: Error) => {
      assert.equal(error.constructor.name, 'ConfigError');
      assert.match(error.message, /CREATE ROLE sandbar_app NOLOGIN; GRANT sandbar_app TO/);
      return true;
    });
    await admin('create role sandbar_app nologin', 'grant sandbar_app to sandbar_owner');
    await checkWorks(url);
  });

  it('that may not make tables is told who has to own the database', async () => {
    const { url, admin } = await ownedDatabase('createrole');
    await admin('alter database sandbar owner to postgres');
    await assert.rejects(asOwner(url, log, migrate), (error: Error) => {
      assert.equal(error.constructor.name, 'ConfigError');
      assert.match(error.message, /ALTER DATABASE "sandbar" OWNER TO "sandbar_owner"/);
      return true;
    });
    await admin('alter database sandbar owner to sandbar_owner');
    await checkWorks(url);
  });

  it('stays when the URL has options of its own', async () => {
    const { url } = await ownedDatabase('createrole');
    const withOptions = new URL(url);
    withOptions.searchParams.set('options', '-c lock_timeout=1234');
    await checkWorks(withOptions.href);
    const db = openDatabase(withOptions.href, log);
    const { rows } = await sql<{ value: string }>`select current_setting('lock_timeout') as value`.execute(db);
    assert.equal(rows[0]?.value, '1234ms');
    await db.destroy();
  });
});
