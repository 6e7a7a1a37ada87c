// The tables as Kysely sees them: column names are the wire's names, so that a row needs little translation.

import type { BillingMode, Tier } from '@sandbar/contract/account.ts';
import type { ActivityAction, ActivityActor, ActivityCategory } from '@sandbar/contract/activity.ts';
import { KEY_SCOPES, type KeyScope } from '@sandbar/contract/api-key.ts';
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { JobStatus } from '@sandbar/contract/exec.ts';
import type { Image } from '@sandbar/contract/image.ts';
import type { ExpiryAction, Isolation, MachineState, OperationKind } from '@sandbar/contract/machine.ts';
import type { QuotaDimension } from '@sandbar/contract/quota.ts';
import type { SnapshotKind, SnapshotState } from '@sandbar/contract/snapshot.ts';
import type { VolumeKind, VolumeState } from '@sandbar/contract/volume.ts';
import type { ColumnType, Generated, JSONColumnType, Selectable } from 'kysely';

/** Set by the database's clock when a row is made. */
type CreatedAt = ColumnType<Date, never, never>;
type Time = ColumnType<Date | null, never, Date | null>;

/** Overrides of the tier's limits; null: the tier's own. */
type AccountLimits = {
  [K in `limit_${QuotaDimension | 'vcpus_per_machine' | 'memory_mb_per_machine'}`]: Generated<number | null>;
};
/** What the account uses now, moved in the transaction of whatever changes it. */
type AccountUse = { [K in `used_${QuotaDimension}`]: Generated<number> };

export type AccountTable = AccountLimits &
  AccountUse & {
    id: string;
    email: string;
    name: Generated<string>;
    email_verified: Generated<boolean>;
    image: Generated<string | null>;
    tier: Tier;
    billing_mode: BillingMode;
    /** The account that the first start made for the owner of the service. */
    is_owner: Generated<boolean>;
    /** Requests a second, instead of the configured ones. */
    rate_mutating: Generated<number | null>;
    rate_exec: Generated<number | null>;
    /** `created_at` of the newest activity entry; entries of an account never share one. */
    activity_at: Generated<Date>;
    created_at: CreatedAt;
    updated_at: Generated<Date>;
  };

export type LedgerTable = {
  id: string;
  account_id: string;
  kind: 'top-up' | 'bonus' | 'charge';
  /** Micro-euro; a charge is negative. */
  amount_micros: number;
  note: Generated<string>;
  created_at: CreatedAt;
};

export type RateBucketTable = { key: string; full_at: Date };

export type IdempotencyKeyTable = {
  account_id: string;
  key: string;
  /** SHA-256 of the request. */
  fingerprint: Buffer;
  machine_id: string;
  created_at: CreatedAt;
};

export type ActivityTable = {
  account_id: string;
  created_at: Date;
  id: string;
  category: ActivityCategory;
  action: ActivityAction;
  actor: ActivityActor;
  machine_id: string | null;
  metadata: JSONColumnType<Record<string, string | number | boolean | null>>;
};

export { KEY_SCOPES, type KeyScope };

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

/** A dashboard session; its token is in the browser's cookie and nowhere else. */
export type SessionTable = {
  id: string;
  account_id: string;
  /** SHA-256 of the token, base64url. */
  token_hash: string;
  expires_at: Date;
  created_at: CreatedAt;
  updated_at: Generated<Date>;
  ip_address: string | null;
  user_agent: string | null;
};

/** How an account proves itself: a password, or a subject of the OpenID provider. */
export type CredentialTable = {
  id: string;
  account_id: string;
  provider: string;
  provider_account_id: string;
  password_hash: string | null;
  scope: Generated<string | null>;
  created_at: CreatedAt;
  updated_at: Generated<Date>;
};

/** A link that was sent, until it is used. */
export type VerificationTable = {
  id: string;
  /** SHA-256 of what the link carries, base64url. */
  identifier: string;
  value: string;
  expires_at: Date;
  created_at: CreatedAt;
  updated_at: Generated<Date>;
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
  images: JSONColumnType<Image[]>;
  /** Takes no new machines. */
  draining: Generated<boolean>;
  created_at: CreatedAt;
  seen_at: ColumnType<Date, never, Date>;
};

export type MachineTable = {
  id: string;
  account_id: string;
  host_id: string;
  name: string;
  state: MachineState;
  /** Grows with every change that its host is told of; the host ignores calls of an older generation. */
  generation: number;
  vcpus: number;
  memory_mb: number;
  rootfs_size_gb: number;
  stack: string;
  /** Leased by the host when it makes the machine; null until the machine has run. */
  private_ip: Generated<string | null>;
  metadata: JSONColumnType<Record<string, unknown>>;
  /** The default environment of its jobs. */
  env: ColumnType<Record<string, string>, string | undefined, never>;
  isolation: Isolation;
  error: string | null;
  on_expiry: ExpiryAction;
  created_at: CreatedAt;
  started_at: Time;
  stopped_at: Time;
  destroyed_at: Time;
  /** The snapshot that its disk began as. */
  snapshot_id: Generated<string | null>;
  /** The root volume that became its disk; of a destroyed machine the one that its disk became. */
  root_volume_id: Generated<string | null>;
};

/** What clients see of a volume, and three states that only the service sees: they hide the volume from its account. */
export type VolumeRowState = VolumeState | 'creating' | 'taken' | 'deleting';

export type VolumeTable = {
  id: string;
  account_id: string;
  /** Where its bytes are; a volume never moves to another host. */
  host_id: string;
  name: Generated<string>;
  kind: VolumeKind;
  size_gb: number;
  /** `taken`: a machine is being made that boots from it. */
  state: VolumeRowState;
  /** The machine that it is attached to, or that takes it. */
  machine_id: Generated<string | null>;
  mount_path: Generated<string | null>;
  /** The stack of the machine that a root disk comes from. */
  stack: Generated<string | null>;
  /** Why the state is `error`. */
  error: Generated<string | null>;
  created_at: CreatedAt;
};

/** What clients see of a snapshot, and two states that only the service sees: they hide it from its account. */
export type SnapshotRowState = SnapshotState | 'creating' | 'deleting';

export type SnapshotTable = {
  id: string;
  account_id: string;
  /** Where its bytes are, and so every machine that is made from it. */
  host_id: string;
  machine_id: string;
  name: Generated<string>;
  kind: SnapshotKind;
  size_gb: number;
  stored_bytes: Generated<number>;
  /** Of the machine it was taken of. */
  stack: string;
  vcpus: number;
  memory_mb: number;
  state: Generated<SnapshotRowState>;
  /** Why the state is `error`. */
  error: Generated<string | null>;
  created_at: CreatedAt;
};

/** Every kind of operation: those that a machine shows, and those of volumes, snapshots and the clock. */
export type AnyOperationKind = OperationKind | 'create_volume' | 'delete_volume' | 'delete_snapshot' | 'expire';

/** What a kind of operation needs to know besides its machine, volume and snapshot. */
export type OperationArguments = {
  /** Destroy: the volume that the root disk becomes. */
  keep_volume_id?: string;
  /** Destroy: how many snapshots were removed with the machine so far. */
  snapshots_deleted?: number;
  /** Attach: where the volume is mounted. */
  mount_path?: string;
};

export type OperationTable = {
  id: Generated<string>;
  account_id: string;
  host_id: string;
  machine_id: string | null;
  volume_id: Generated<string | null>;
  snapshot_id: Generated<string | null>;
  kind: AnyOperationKind;
  args: ColumnType<OperationArguments, string, string>;
  /** Who asked for it, for the activity feed. */
  actor: ActivityActor;
  /** The host refused it, and what was done is being taken back. */
  undoing: Generated<boolean>;
  /** Of the process that works on it; renewed while that process lives. */
  claim_token: Generated<string | null>;
  claim_expires_at: ColumnType<Date | null, Date | null | undefined, Date | null>;
  attempts: Generated<number>;
  /** Why the last attempt failed; of a finished operation, why it was not done. */
  last_error: Generated<string | null>;
  error_code: Generated<ErrorCode | null>;
  /** When the reconciler takes it, unless somebody works on it. */
  run_at: ColumnType<Date, Date | undefined, Date>;
  created_at: CreatedAt;
  finished_at: Time;
};

export type ExecTable = {
  machine_id: string;
  id: string;
  account_id: string;
  name: Generated<string>;
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
  activity: ActivityTable;
  idempotency_keys: IdempotencyKeyTable;
  ledger: LedgerTable;
  rate_buckets: RateBucketTable;
  api_keys: ApiKeyTable;
  credentials: CredentialTable;
  sessions: SessionTable;
  verifications: VerificationTable;
  hosts: HostTable;
  machines: MachineTable;
  execs: ExecTable;
  volumes: VolumeTable;
  snapshots: SnapshotTable;
  operations: OperationTable;
};

export type AccountRow = Selectable<AccountTable>;
export type ApiKeyRow = Selectable<ApiKeyTable>;
export type HostRow = Selectable<HostTable>;
export type MachineRow = Selectable<MachineTable>;
export type VolumeRow = Selectable<VolumeTable>;
export type SnapshotRow = Selectable<SnapshotTable>;
export type OperationRow = Selectable<OperationTable>;
export type ExecRow = Selectable<ExecTable>;
