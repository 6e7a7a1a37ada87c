// Adds the depth of each host's pool, which the agent reports, for the metrics.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table hosts
      add column pool_ready integer not null default 0,
      add column pool_target integer not null default 0`.execute(db);
}
