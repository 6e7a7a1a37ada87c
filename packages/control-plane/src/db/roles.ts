// The role of the application: it may change rows, but not the tables, and what was recorded for good (the activity feed,
// the ledger) it may only add to and read. Migrations and the dropping of old months run as the owner.
import { sql } from 'kysely';
import { ConfigError } from '../config.ts';
import { APP_ROLE, type Db } from './database.ts';
import { inTransaction } from './transaction.ts';

/** Tables whose rows are never changed or deleted one by one. */
const APPEND_ONLY: readonly string[] = ['activity', 'ledger'];

/** Makes the role where it is missing and gives it what it needs of each table. Throws ConfigError when it may not. */
export async function grantToApp(owner: Db): Promise<void> {
  await ensureRole(owner);
  const { rows } = await sql<{ name: string }>`
    select c.relname as name from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname not like 'kysely%'`.execute(owner);
  const schema = await currentSchema(owner);
  await inTransaction(owner, async (tx) => {
    await sql`grant usage on schema ${sql.id(schema)} to ${sql.id(APP_ROLE)}`.execute(tx);
    for (const { name } of rows) {
      const rights = APPEND_ONLY.includes(name) ? 'select, insert' : 'select, insert, update, delete';
      await sql`grant ${sql.raw(rights)} on ${sql.table(name)} to ${sql.id(APP_ROLE)}`.execute(tx);
    }
  });
}

async function currentSchema(owner: Db): Promise<string> {
  const { rows } = await sql<{ name: string }>`select current_schema() as name`.execute(owner);
  return rows[0]?.name ?? 'public';
}

/** Roles belong to the whole server: another database's replica may make it at the same moment. */
async function ensureRole(owner: Db): Promise<void> {
  try {
    await sql`
      do $$ begin
        if not exists (select from pg_roles where rolname = ${sql.lit(APP_ROLE)}) then
          begin
            create role ${sql.id(APP_ROLE)} nologin;
          exception when duplicate_object or unique_violation then null;
          end;
        end if;
        -- Membership alone does not allow SET ROLE since PostgreSQL 16.
        if not pg_has_role(current_user, ${sql.lit(APP_ROLE)},
            case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end) then
          execute format('grant %I to %I', ${sql.lit(APP_ROLE)}, current_user);
        end if;
      end $$`.execute(owner);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === '42501')) throw error;
    throw new ConfigError(
      `The role of SANDBAR_DATABASE_URL may not make the role ${APP_ROLE}. As an administrator of the database, once: ` +
        `CREATE ROLE ${APP_ROLE} NOLOGIN; GRANT ${APP_ROLE} TO the role of SANDBAR_DATABASE_URL;`,
    );
  }
}
