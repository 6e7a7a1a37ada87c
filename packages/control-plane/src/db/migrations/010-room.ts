// Adds `execs.output_expired`: the host has dropped the output of the job.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table execs add column output_expired boolean not null default false`.execute(db);
}
