// Lets volumes move to other hosts. Each move raises the generation of the volume. So a host can tell that a delayed
// call belongs to an earlier move, and ignores it.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table volumes add column generation integer not null default 1`.execute(db);
}
