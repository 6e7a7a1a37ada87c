// Lets several accounts share the service: adds limits and use of accounts, the wallet's ledger, rate limits,
// idempotency keys, and the activity feed with monthly partitions.
import { type Kysely, sql } from 'kysely';
import { ACTIVITY_SEARCH_TEXT } from '../../activity/search.ts';

export async function up(db: Kysely<unknown>): Promise<void> {
  // Limits and use are in the same row, so that locking this row makes the quota check and the charge atomic.
  await sql`
    alter table accounts
      add column name text not null default '',
      add column email_verified boolean not null default false,
      add column image text,
      add column updated_at timestamptz(3) not null default now(),
      add column is_owner boolean not null default false,
      add column limit_machines integer check (limit_machines >= 0),
      add column limit_vcpus integer check (limit_vcpus >= 0),
      add column limit_memory_mb integer check (limit_memory_mb >= 0),
      add column limit_storage_gb integer check (limit_storage_gb >= 0),
      add column limit_volumes integer check (limit_volumes >= 0),
      add column limit_vcpus_per_machine integer check (limit_vcpus_per_machine >= 0),
      add column limit_memory_mb_per_machine integer check (limit_memory_mb_per_machine >= 0),
      add column rate_mutating integer check (rate_mutating >= 1),
      add column rate_exec integer check (rate_exec >= 1),
      add column used_machines integer not null default 0 check (used_machines >= 0),
      add column used_vcpus integer not null default 0 check (used_vcpus >= 0),
      add column used_memory_mb integer not null default 0 check (used_memory_mb >= 0),
      add column used_storage_gb integer not null default 0 check (used_storage_gb >= 0),
      add column used_volumes integer not null default 0 check (used_volumes >= 0),
      add column activity_at timestamptz(3) not null default 'epoch'`.execute(db);
  await sql`update accounts set is_owner = id = (select id from accounts order by created_at, id limit 1)`.execute(db);
  await sql`create unique index accounts_owner on accounts (is_owner) where is_owner`.execute(db);
  await sql`
    update accounts set (used_machines, used_vcpus, used_memory_mb, used_storage_gb) = (
      select count(*), coalesce(sum(vcpus), 0), coalesce(sum(memory_mb), 0), coalesce(sum(rootfs_size_gb), 0)
      from machines where account_id = accounts.id and state not in ('error', 'destroyed'))`.execute(db);
  await sql`
    create table ledger (
      id uuid primary key,
      account_id uuid not null references accounts (id),
      kind text not null check (kind in ('top-up', 'bonus', 'charge')),
      amount_micros bigint not null check (amount_micros <> 0),
      note text not null default '',
      created_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create index ledger_account on ledger (account_id, created_at, id) include (amount_micros)`.execute(db);
  // Unlogged tables are not written to the write-ahead log, which makes rate limiting cheap. After a crash the table is
  // empty, so all buckets are full again; that does no harm.
  await sql`
    create unlogged table rate_buckets (
      key text primary key,
      full_at timestamptz not null
    )`.execute(db);
  // The foreign key is deferred because the machine's row is inserted after the key, in the same transaction. When a
  // failed create deletes the machine, the key is deleted too.
  await sql`
    create table idempotency_keys (
      account_id uuid not null,
      key text not null,
      fingerprint bytea not null,
      machine_id uuid not null references machines (id) on delete cascade deferrable initially deferred,
      created_at timestamptz(3) not null default now(),
      primary key (account_id, key)
    )`.execute(db);
  await sql`create index idempotency_keys_machine on idempotency_keys (machine_id)`.execute(db);
  await sql`create index idempotency_keys_age on idempotency_keys (created_at)`.execute(db);
  // Who requested the state in `desired`, for the activity feed.
  await sql`alter table machines add column desired_by text not null default 'user'`.execute(db);
  await sql`create index machines_destroyed on machines (destroyed_at) where state = 'destroyed'`.execute(db);
  await createActivity(db);
}

async function createActivity(db: Kysely<unknown>): Promise<void> {
  await sql`create extension if not exists pg_trgm`.execute(db);
  // No foreign keys: an entry outlives the machine that it describes. Pages of the feed are read in the order of the
  // primary key, newest first.
  await sql`
    create table activity (
      account_id uuid not null,
      created_at timestamptz(3) not null,
      id uuid not null,
      category text not null,
      action text not null,
      actor text not null,
      machine_id text,
      metadata jsonb not null,
      primary key (account_id, created_at, id)
    ) partition by range (created_at)`.execute(db);
  await sql`create index activity_category on activity (account_id, category, created_at, id)`.execute(db);
  await sql`create index activity_machine on activity (account_id, machine_id, created_at, id)
    where machine_id is not null`.execute(db);
  await sql`create index activity_search on activity using gin (${ACTIVITY_SEARCH_TEXT} gin_trgm_ops)`.execute(db);
}
