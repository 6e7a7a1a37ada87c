// Adds dashboard sessions, credentials for sign-in, and links sent by e-mail. No column contains a secret in plain
// text: session tokens and links are stored as SHA-256, passwords as scrypt hashes, and tokens of an OpenID provider
// are not stored.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table sessions (
      id uuid primary key,
      account_id uuid not null references accounts (id) on delete cascade,
      token_hash text not null unique,
      expires_at timestamptz(3) not null,
      created_at timestamptz(3) not null default now(),
      updated_at timestamptz(3) not null default now(),
      ip_address text,
      user_agent text
    )`.execute(db);
  await sql`create index sessions_account on sessions (account_id)`.execute(db);
  await sql`create index sessions_expiry on sessions (expires_at)`.execute(db);
  await sql`
    create table credentials (
      id uuid primary key,
      account_id uuid not null references accounts (id) on delete cascade,
      provider text not null,
      provider_account_id text not null,
      password_hash text,
      scope text,
      created_at timestamptz(3) not null default now(),
      updated_at timestamptz(3) not null default now(),
      unique (provider, provider_account_id)
    )`.execute(db);
  await sql`create index credentials_account on credentials (account_id)`.execute(db);
  await sql`
    create table verifications (
      id uuid primary key,
      identifier text not null,
      value text not null,
      expires_at timestamptz(3) not null,
      created_at timestamptz(3) not null default now(),
      updated_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create index verifications_identifier on verifications (identifier)`.execute(db);
  await sql`create index verifications_expiry on verifications (expires_at)`.execute(db);
  // E-mail addresses are stored in lower case from now on, so that upper and lower case do not matter. Existing
  // accounts were created by the operator, so their addresses count as verified.
  await sql`update accounts set email = lower(email), email_verified = true`.execute(db);
  await sql`drop index accounts_email`.execute(db);
  await sql`create unique index accounts_email on accounts (email)`.execute(db);
}
