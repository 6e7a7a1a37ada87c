// Adds operator accounts besides the first account, and the time when the person of a session last proved who they are.
// It locks the sessions first, as the requests of an older replica do that find their session and then its account. The
// other order could deadlock with such a request.
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
