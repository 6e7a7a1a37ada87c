// Adds `hosts.templates`: the shapes of machines of which the host has a template, so that a create starts as a clone
// there. The default is for older replicas, which insert hosts without them.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table hosts add column templates jsonb not null default '[]'`.execute(db);
}
