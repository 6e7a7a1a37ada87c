// Adds what the control plane knows about the object store: which blobs are in it, of which parts they consist, and
// which snapshots and images need them. Also the processor of each host, which decides where saved memory can be
// resumed.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table hosts add column processor text`.execute(db);
  // The id is the first part of the names of all objects. So two databases that share a bucket by mistake never remove
  // each other's objects.
  await sql`create table object_stores (id uuid primary key, is_only boolean not null unique default true check (is_only))`.execute(
    db,
  );
  await sql`insert into object_stores (id) values (gen_random_uuid())`.execute(db);
  await sql`
    create table blobs (
      id uuid primary key,
      sha256 text not null unique,
      bytes bigint not null check (bytes >= 0),
      state text not null default 'uploading' check (state in ('uploading', 'published', 'removing')),
      used_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`
    create table blob_parts (
      blob_id uuid not null references blobs (id) on delete cascade,
      index integer not null,
      key text not null unique,
      sha256 text not null,
      bytes integer not null check (bytes > 0),
      primary key (blob_id, index)
    )`.execute(db);
  // A publication is of a snapshot, or of an image as one host has it.
  await sql`
    create table publications (
      id uuid primary key,
      snapshot_id uuid unique references snapshots (id) on delete cascade,
      stack text,
      digest text,
      image_created_at timestamptz(3),
      host_id uuid references hosts (id),
      due_at timestamptz(3) default now(),
      failures integer not null default 0,
      manifest jsonb,
      processor text,
      published_at timestamptz(3),
      check ((snapshot_id is null) = (stack is not null and digest is not null and image_created_at is not null
        and host_id is not null)),
      unique (stack, digest, image_created_at)
    )`.execute(db);
  await sql`create index publications_due on publications (due_at) where published_at is null`.execute(db);
  await sql`
    create table publication_blobs (
      publication_id uuid not null references publications (id) on delete cascade,
      name text not null,
      blob_id uuid not null references blobs (id),
      primary key (publication_id, name)
    )`.execute(db);
  await sql`create index publication_blobs_blob on publication_blobs (blob_id)`.execute(db);
}
