// Lets replicas share the hosts: a row for each replica that is alive, and since when a host has not been reached. The
// index serves the comparison of a host's volumes with their rows.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create table replicas (id uuid primary key, alive_until timestamptz(3) not null)`.execute(db);
  await sql`alter table hosts add column away_since timestamptz(3)`.execute(db);
  await sql`create index volumes_host on volumes (host_id)`.execute(db);
}
