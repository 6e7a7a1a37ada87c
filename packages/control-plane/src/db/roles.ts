// Creates the database role of the application. This role may change rows but not tables. In the activity feed, the
// ledger and the price lists it may only insert and read. Of a meter it may change only the end. Migrations and the
// deletion of old months of the feed use the owner's role instead.
import { sql } from 'kysely';
import { ConfigError } from '../config.ts';
import { APP_ROLE, type Db } from './database.ts';
import { inTransaction } from './transaction.ts';

/** The application's rights on the rows of these tables. In all other tables it may read and change all rows. */
const RIGHTS: Readonly<Record<string, string>> = {
  activity: 'select, insert',
  ledger: 'select, insert',
  prices: 'select, insert',
  schema_oldest_reader: 'select',
  meters: 'select, insert, update (ended_at)',
};

/**
 * Creates the role if it does not exist and grants it its rights on each table. Throws `ConfigError` if the owner may
 * not create roles.
 */
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
      const rights = RIGHTS[name] ?? 'select, insert, update, delete';
      await sql`grant ${sql.raw(rights)} on ${sql.table(name)} to ${sql.id(APP_ROLE)}`.execute(tx);
    }
  });
}

const FORBIDDEN = '42501';
const isForbidden = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === FORBIDDEN;

/**
 * Returns a `ConfigError` that says what to run, if `error` means that the owner's role may not create tables. Since
 * PostgreSQL 15, only the owner of a database may do so in the schema public. Returns undefined for other errors.
 */
export async function schemaIsClosed(owner: Db, error: unknown): Promise<ConfigError | undefined> {
  if (!isForbidden(error) || !/for schema/.test(String(error))) return undefined;
  const { rows } = await sql<{ role: string; database: string; schema: string | null }>`
    select current_user as role, current_database() as database, current_schema() as schema`.execute(owner);
  const { role, database, schema } = rows[0] ?? {};
  return new ConfigError(
    `The role ${role} of SANDBAR_DATABASE_URL may not create tables in the schema ${schema ?? 'public'}. As an administrator of ` +
      `the database, once: ALTER DATABASE "${database}" OWNER TO "${role}";`,
  );
}

async function currentSchema(owner: Db): Promise<string> {
  const { rows } = await sql<{ name: string }>`select current_schema() as name`.execute(owner);
  return rows[0]?.name ?? 'public';
}

/**
 * Creates the role if it does not exist. Roles are shared by all databases of a server, so a replica that uses another
 * database may create the role at the same time.
 */
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
    if (!isForbidden(error)) throw error;
    throw new ConfigError(
      `The role of SANDBAR_DATABASE_URL may not make the role ${APP_ROLE}. As an administrator of the database, once: ` +
        `CREATE ROLE ${APP_ROLE} NOLOGIN; GRANT ${APP_ROLE} TO the role of SANDBAR_DATABASE_URL;`,
    );
  }
}
