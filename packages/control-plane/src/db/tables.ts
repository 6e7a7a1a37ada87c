// The tables as Kysely sees them: column names are the wire's names, so that a row needs little translation.

import type { JobStatus } from '@sandbar/contract/exec.ts';
import type { Image } from '@sandbar/contract/image.ts';
import type { Isolation, MachineState } from '@sandbar/contract/machine.ts';
import type { ColumnType, Generated, JSONColumnType, Selectable } from 'kysely';

/** Set by the database's clock when a row is made. */
type CreatedAt = ColumnType<Date, never, never>;
type Time = ColumnType<Date | null, never, Date | null>;

export type AccountTable = {
  id: string;
  email: string;
  tier: Tier;
  billing_mode: 'prepaid' | 'unmetered';
  created_at: CreatedAt;
};
export const TIERS = ['free', 'payg', 'enterprise'] as const;
export type Tier = (typeof TIERS)[number];

export const KEY_SCOPES = ['read', 'full'] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];

export type ApiKeyTable = {
  id: string;
  account_id: string;
  name: string;
  scope: KeyScope;
  /** The first 12 characters of the key. */
  prefix: string;
  /** SHA-256 of the key; the key itself is nowhere. */
  key_hash: Buffer;
  created_at: CreatedAt;
  last_used_at: Time;
  expires_at: ColumnType<Date | null, Date | null, Date | null>;
};

export type HostTable = {
  id: string;
  version: string;
  boot_id: string;
  isolation: Isolation;
  network: 'bridge' | 'user';
  subnet: string;
  cpus: number;
  memory_mb: number;
  /** Sum over the host's machines that are provisioning or running. */
  reserved_memory_mb: Generated<number>;
  /** Grows with every address handed out, so that an address is reused as late as possible. */
  address_counter: Generated<number>;
  images: JSONColumnType<Image[]>;
  created_at: CreatedAt;
  seen_at: ColumnType<Date, never, Date>;
};

/** What should become of a machine. `discarded`: a create that failed; host and row are to forget it. */
export type Desired = 'running' | 'stopped' | 'destroyed' | 'discarded';

export type MachineTable = {
  id: string;
  account_id: string;
  host_id: string;
  name: string;
  state: MachineState;
  desired: Desired;
  generation: number;
  vcpus: number;
  memory_mb: number;
  rootfs_size_gb: number;
  stack: string;
  private_ip: string;
  metadata: JSONColumnType<Record<string, unknown>>;
  isolation: Isolation;
  error: string | null;
  created_at: CreatedAt;
  started_at: Time;
  stopped_at: Time;
  destroyed_at: Time;
  claim_token: string | null;
  claim_expires_at: ColumnType<Date | null, Date | null, Date | null>;
};

export type ExecTable = {
  machine_id: string;
  id: string;
  account_id: string;
  status: JobStatus;
  exit_code: number | null;
  signal: string | null;
  timeout_sec: number;
  stdout_bytes: Generated<number>;
  stderr_bytes: Generated<number>;
  truncated: Generated<boolean>;
  created_at: CreatedAt;
  finished_at: Time;
};

export type Database = {
  accounts: AccountTable;
  api_keys: ApiKeyTable;
  hosts: HostTable;
  machines: MachineTable;
  execs: ExecTable;
};

export type HostRow = Selectable<HostTable>;
export type MachineRow = Selectable<MachineTable>;
export type ExecRow = Selectable<ExecTable>;
