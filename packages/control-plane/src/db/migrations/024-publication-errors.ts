// Adds the reason why the last attempt at a publication failed, so that the audit can tell the operator.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table publications add column last_error text`.execute(db);
}
