// Lets volumes move to other hosts. The generation grows with every move, so that hosts ignore late calls of earlier
// moves.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table volumes add column generation integer not null default 1`.execute(db);
}
