// Adds the ports of machines that everybody may use. A port without a row is private.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table public_ports (
      machine_id uuid not null references machines (id) on delete cascade,
      port integer not null check (port between 1 and 65535),
      primary key (machine_id, port)
    )`.execute(db);
}
