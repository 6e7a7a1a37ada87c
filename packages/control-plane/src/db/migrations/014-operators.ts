// Adds operator accounts besides the first account, and the time when the person of a session last proved who they are.
// It locks the sessions before the accounts. A request of an older replica locks them in this order too: it finds its
// session, then the account. With the other order, the migration and such a request could deadlock.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table sessions add column confirmed_at timestamptz(3)`.execute(db);
  await sql`update sessions set confirmed_at = created_at`.execute(db);
  await sql`
    alter table sessions
      alter column confirmed_at set default now(),
      alter column confirmed_at set not null`.execute(db);
  await sql`alter table accounts add column is_operator boolean not null default false`.execute(db);
}
