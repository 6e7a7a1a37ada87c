// A database whose clock a test can step forward and back. The real clock of PostgreSQL cannot be stepped: it is the
// clock of the machine. So a function `clock_timestamp` stands in front of the built-in one on the search path, and
// adds an offset to it. Statements of the service find this function, because they name `clock_timestamp` without a
// schema.
import { sql } from 'kysely';
import pg from 'pg';
import type { Db } from '../../src/db/database.ts';
import { createDatabase } from './postgres.ts';

/** Returns the URL of a new, empty database whose clock can be stepped. */
export async function createSteppedDatabase(): Promise<string> {
  const url = new URL(await createDatabase());
  // PostgreSQL searches pg_catalog first unless the path names it at another place.
  url.searchParams.set('options', '-c search_path=public,pg_catalog');
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  await client.query(`
    create schema stepped;
    grant usage on schema stepped to public;
    create table stepped.clock (ahead interval not null);
    insert into stepped.clock values ('0');
    grant select, update on stepped.clock to public;
    create function public.clock_timestamp() returns timestamptz language sql volatile
      as 'select pg_catalog.clock_timestamp() + ahead from stepped.clock'`);
  await client.end();
  return url.href;
}

/**
 * Steps the clock forward, or back if `ms` is negative. It goes at most 40 days ahead, because the feed has tables for
 * the next two months only.
 */
export async function stepClock(db: Db, ms: number): Promise<void> {
  await sql`
    update stepped.clock
    set ahead = least(ahead + ${ms}::bigint * interval '1 millisecond', interval '40 days')`.execute(db);
}

/** Sets the clock to the real time. */
export async function resetClock(db: Db): Promise<void> {
  await sql`update stepped.clock set ahead = '0'`.execute(db);
}

/** What the database's clock says now, in milliseconds since 1970. */
export async function readClock(db: Db): Promise<number> {
  const { rows } = await sql<{ now: Date }>`select clock_timestamp() as now`.execute(db);
  return rows[0]?.now.getTime() ?? Number.NaN;
}
