// Why a volume is in state error, for whoever looks for its data.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table volumes add column error text`.execute(db);
}
