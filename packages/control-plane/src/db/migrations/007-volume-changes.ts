// Adds `volumes.change`, which is written before a volume is changed on its host. After a crash the reconciler reads it
// and finishes the change.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table volumes
      add column change text check (change in ('creating', 'attaching', 'detaching', 'taking')),
      add column claim_token uuid,
      add column claim_expires_at timestamptz,
      add check (change not in ('attaching', 'detaching') or machine_id is not null)`.execute(db);
  await sql`create index volumes_changing on volumes (host_id) where change is not null`.execute(db);
  // At most one volume at each mount path of a machine, even with parallel requests.
  await sql`
    create unique index volumes_mount on volumes (machine_id, mount_path) where machine_id is not null`.execute(db);
}
