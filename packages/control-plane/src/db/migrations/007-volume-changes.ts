// What is being done to a volume, written down before it is done, so that whatever dies in the middle can be ended.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table volumes
      add column change text check (change in ('creating', 'attaching', 'detaching', 'taking')),
      add column claim_token uuid,
      add column claim_expires_at timestamptz,
      add check (change not in ('attaching', 'detaching') or machine_id is not null)`.execute(db);
  await sql`create index volumes_changing on volumes (host_id) where change is not null`.execute(db);
  // One volume a place, whatever races.
  await sql`
    create unique index volumes_mount on volumes (machine_id, mount_path) where machine_id is not null`.execute(db);
}
