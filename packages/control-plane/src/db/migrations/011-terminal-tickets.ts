// Adds the tickets that open terminals. A ticket is deleted when it is spent. `credential_id` names the API key or the
// session (`via`) of the client that got the ticket.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table terminal_tickets (
      ticket_hash bytea primary key,
      account_id uuid not null references accounts (id) on delete cascade,
      machine_id uuid not null references machines (id) on delete cascade,
      terminal_id uuid not null,
      wanted jsonb not null,
      via text not null check (via in ('key', 'session')),
      credential_id uuid not null,
      expires_at timestamptz(3) not null
    )`.execute(db);
  await sql`create index terminal_tickets_expiry on terminal_tickets (expires_at)`.execute(db);
  await sql`create index terminal_tickets_machine on terminal_tickets (machine_id)`.execute(db);
}
