// Lets hosts on other computers join: the certificate authority of the fleet, the tokens with which hosts join, and
// what the control plane knows about each joined host. Also lets one replica at a time listen to a host. All columns
// have defaults, because an older replica still inserts hosts without them.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table hosts
      add column name text not null default '',
      add column address text,
      add column certificate_expires_at timestamptz(3),
      add column emptying boolean not null default false,
      add column removed_at timestamptz(3),
      add column listener_id uuid,
      add column listener_until timestamptz(3)`.execute(db);
  await sql`
    create table host_tokens (
      id uuid primary key,
      token_hash bytea not null unique,
      created_at timestamptz(3) not null default now(),
      expires_at timestamptz(3) not null,
      used_at timestamptz(3),
      host_id uuid,
      key_hash bytea
    )`.execute(db);
  await sql`
    create table fleet_authorities (
      id uuid primary key,
      certificate text not null,
      sealed_key bytea not null,
      created_at timestamptz(3) not null default now()
    )`.execute(db);
}
