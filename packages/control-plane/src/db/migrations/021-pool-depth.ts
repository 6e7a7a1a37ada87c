// Adds how many clones the pool of each host has ready and how many it should have. The agent reports both, and the
// metrics show them.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table hosts
      add column pool_ready integer not null default 0,
      add column pool_target integer not null default 0`.execute(db);
}
