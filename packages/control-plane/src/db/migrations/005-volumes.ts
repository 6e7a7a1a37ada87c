// Adds volumes, and `machines.keep_volume_id`: when a machine is destroyed and its root disk is kept, the disk becomes
// the volume with this id.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table volumes (
      id uuid primary key,
      account_id uuid not null references accounts (id),
      host_id uuid not null references hosts (id),
      name text not null default '',
      kind text not null check (kind in ('data', 'root')),
      size_gb integer not null check (size_gb >= 1),
      state text not null check (state in ('available', 'attached', 'error')),
      machine_id uuid references machines (id),
      mount_path text,
      stack text,
      deleting boolean not null default false,
      created_at timestamptz(3) not null default now(),
      check (state <> 'attached' or machine_id is not null)
    )`.execute(db);
  await sql`create index volumes_account on volumes (account_id, created_at desc, id desc)`.execute(db);
  await sql`create index volumes_machine on volumes (machine_id) where machine_id is not null`.execute(db);
  // For the reconciler, which searches for these rows in every pass.
  await sql`create index volumes_deleting on volumes (host_id) where deleting`.execute(db);
  await sql`alter table machines add column keep_volume_id uuid`.execute(db);
}
