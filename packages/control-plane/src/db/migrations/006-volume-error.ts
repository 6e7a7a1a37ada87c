// Adds `volumes.error`: the reason why a volume is in state `error`.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table volumes add column error text`.execute(db);
}
