// Adds device logins, by which programs get API keys, and the number of wrong codes that an account entered. Both codes
// of a device login are stored as hashes only.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table device_logins (
      id uuid primary key,
      device_code_hash bytea not null unique,
      user_code_hash bytea not null unique,
      name text not null,
      address text not null,
      state text not null default 'pending' check (state in ('pending', 'approved', 'denied', 'taken')),
      account_id uuid references accounts (id) on delete cascade,
      scope text check (scope in ('read', 'full')),
      interval_sec integer not null,
      polled_at timestamptz(3),
      created_at timestamptz(3) not null default now(),
      expires_at timestamptz(3) not null,
      check ((state = 'pending') = (account_id is null)),
      check ((state in ('approved', 'taken')) = (scope is not null))
    )`.execute(db);
  await sql`create index device_logins_account on device_logins (account_id)`.execute(db);
  await sql`create index device_logins_expiry on device_logins (expires_at)`.execute(db);
  await sql`
    create table device_guesses (
      account_id uuid primary key references accounts (id) on delete cascade,
      wrong integer not null,
      last_wrong_at timestamptz(3) not null
    )`.execute(db);
}
