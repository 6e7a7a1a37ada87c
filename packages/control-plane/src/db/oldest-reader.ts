// Lets the version before run on the schema of a newer one, so that replicas of both versions can be restarted during
// an upgrade, and an upgrade can be taken back. The database says which version may: each version writes it down before
// it migrates.
import { sql } from 'kysely';
import { ConfigError } from '../config-error.ts';
import type { Db } from './database.ts';
import { inTransaction } from './transaction.ts';

/**
 * The last migration of the oldest version that works on the schema of this one. All migrations after it only add: new
 * tables, and new columns that older statements may leave out. A migration that does more must be named here itself.
 * `migration.older-version.behaviour.test.ts` compares the schemas.
 */
export const OLDEST_READER = '019-templates';

/** Writes {@link OLDEST_READER} into the database. Call it with the owner, before the migrations. */
export async function noteOldestReader(owner: Db): Promise<void> {
  await sql`create table if not exists schema_oldest_reader (migration text not null)`.execute(owner);
  await inTransaction(owner, async (tx) => {
    await sql`delete from schema_oldest_reader`.execute(tx);
    await sql`insert into schema_oldest_reader values (${OLDEST_READER})`.execute(tx);
  });
}

/**
 * Returns the migrations of the database that this version does not know, because a newer version has made them.
 * `known`: all migrations of this version, in order. Throws `ConfigError` when this version cannot work on that schema.
 */
export async function newerMigrations(owner: Db, known: readonly string[]): Promise<string[]> {
  const applied = await readNames(owner, 'kysely_migration', 'name');
  const newer = applied.filter((name) => !known.includes(name));
  if (newer.length === 0) return [];
  const [oldest] = await readNames(owner, 'schema_oldest_reader', 'migration');
  const last = known.at(-1) ?? '';
  const isReadable = oldest !== undefined && last >= oldest && known.every((name) => applied.includes(name));
  if (isReadable) return newer;
  throw new ConfigError(
    `The database was migrated by a newer version of Sandbar (${newer.join(', ')}), on whose tables this version does not work: start the newer version, or restore a back-up from before the upgrade`,
  );
}

async function readNames(db: Db, table: string, column: string): Promise<string[]> {
  const found = await sql<{ exists: boolean }>`select to_regclass(${table}) is not null as exists`.execute(db);
  if (!found.rows[0]?.exists) return [];
  const { rows } = await sql<{ name: string }>`
    select ${sql.ref(column)} as name from ${sql.table(table)} order by 1`.execute(db);
  return rows.map(({ name }) => name);
}
