// Adds `hosts.draining`: the operator sets it before removing a host, so that no new machines are placed there.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table hosts add column draining boolean not null default false`.execute(db);
}
