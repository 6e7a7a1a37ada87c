// Adds snapshots, and columns of machines for the snapshot or root volume from which a machine was created, and for an
// unfinished restore.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  // A snapshot never exists longer than its machine: a delete of the machine either deletes its snapshots too or is
  // refused.
  await sql`
    create table snapshots (
      id uuid primary key,
      account_id uuid not null references accounts (id),
      host_id uuid not null references hosts (id),
      machine_id uuid not null references machines (id),
      name text not null default '',
      kind text not null check (kind in ('disk', 'memory')),
      size_gb integer not null check (size_gb >= 1),
      stored_bytes bigint not null default 0 check (stored_bytes >= 0),
      stack text not null,
      vcpus integer not null,
      memory_mb integer not null,
      state text not null default 'ready' check (state in ('ready', 'error')),
      error text,
      change text check (change in ('creating', 'deleting')),
      created_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create index snapshots_account on snapshots (account_id, created_at desc, id desc)`.execute(db);
  await sql`create index snapshots_machine on snapshots (machine_id, created_at desc, id desc)`.execute(db);
  await sql`create index snapshots_host on snapshots (host_id)`.execute(db);
  // For the reconciler, which searches for these rows in every pass.
  await sql`create index snapshots_changing on snapshots (host_id) where change is not null`.execute(db);
  await sql`
    alter table machines
      add column snapshot_id uuid,
      add column root_volume_id uuid,
      add column restoring_snapshot_id uuid,
      add column snapshots_deleted integer not null default 0`.execute(db);
  await sql`create index machines_restoring on machines (restoring_snapshot_id)
    where restoring_snapshot_id is not null`.execute(db);
}
