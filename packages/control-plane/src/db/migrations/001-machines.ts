// Creates the tables of accounts, API keys, hosts, machines and jobs. Times have millisecond precision, as in the API,
// so that a paging cursor made from a time that a client saw matches the row exactly.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table accounts (
      id uuid primary key,
      email text not null,
      tier text not null check (tier in ('free', 'payg', 'enterprise')),
      billing_mode text not null check (billing_mode in ('prepaid', 'unmetered')),
      created_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create unique index accounts_email on accounts (lower(email))`.execute(db);
  await sql`
    create table api_keys (
      id uuid primary key,
      account_id uuid not null references accounts (id) on delete cascade,
      name text not null,
      scope text not null check (scope in ('read', 'full')),
      prefix text not null,
      key_hash bytea not null unique,
      created_at timestamptz(3) not null default now(),
      last_used_at timestamptz(3),
      expires_at timestamptz(3)
    )`.execute(db);
  await sql`create index api_keys_account on api_keys (account_id, created_at desc, id desc)`.execute(db);
  await sql`
    create table hosts (
      id uuid primary key,
      version text not null,
      boot_id text not null,
      isolation text not null,
      network text not null,
      subnet text not null,
      cpus integer not null,
      memory_mb integer not null,
      reserved_memory_mb integer not null default 0 check (reserved_memory_mb >= 0),
      address_counter integer not null default 0,
      images jsonb not null,
      created_at timestamptz(3) not null default now(),
      seen_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`
    create table machines (
      id uuid primary key,
      account_id uuid not null references accounts (id),
      host_id uuid not null references hosts (id),
      name text not null,
      state text not null check (state in ('pending', 'provisioning', 'running', 'stopped', 'error', 'destroyed')),
      desired text not null check (desired in ('running', 'stopped', 'destroyed', 'discarded')),
      generation integer not null check (generation >= 1),
      vcpus integer not null,
      memory_mb integer not null,
      rootfs_size_gb integer not null,
      stack text not null,
      private_ip text not null,
      metadata jsonb not null default '{}',
      isolation text not null,
      error text,
      created_at timestamptz(3) not null default now(),
      started_at timestamptz(3),
      stopped_at timestamptz(3),
      destroyed_at timestamptz(3),
      claim_token uuid,
      claim_expires_at timestamptz
    )`.execute(db);
  await sql`create index machines_account on machines (account_id, created_at desc, id desc)`.execute(db);
  await sql`create unique index machines_address on machines (host_id, private_ip) where state <> 'destroyed'`.execute(
    db,
  );
  // For the reconciler, which searches for these rows in every pass. The index omits destroyed machines, so that they
  // do not slow the search down.
  await sql`create index machines_live on machines (host_id, id) where state <> 'destroyed'`.execute(db);
  await sql`
    create table execs (
      machine_id uuid not null references machines (id) on delete cascade,
      id uuid not null,
      account_id uuid not null references accounts (id),
      status text not null check (status in ('running', 'exited', 'timed_out', 'canceled', 'lost')),
      exit_code integer,
      signal text,
      timeout_sec integer not null,
      stdout_bytes bigint not null default 0,
      stderr_bytes bigint not null default 0,
      truncated boolean not null default false,
      created_at timestamptz(3) not null default now(),
      finished_at timestamptz(3),
      primary key (machine_id, id)
    )`.execute(db);
  await sql`create index execs_list on execs (machine_id, created_at desc, id desc)`.execute(db);
  await sql`create index execs_running on execs (machine_id) where status = 'running'`.execute(db);
}
