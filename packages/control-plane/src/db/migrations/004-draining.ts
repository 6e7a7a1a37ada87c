// Hosts that take no new machines, because the operator is about to take them away.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table hosts add column draining boolean not null default false`.execute(db);
}
