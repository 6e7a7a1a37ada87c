// The types of the database tables for Kysely. Columns have the same names as the fields of the API, so that rows need
// little conversion.

import type { BillingMode, Tier } from '@sandbar/contract/account.ts';
import type { ActivityAction, ActivityActor, ActivityCategory } from '@sandbar/contract/activity.ts';
import { KEY_SCOPES, type KeyScope } from '@sandbar/contract/api-key.ts';
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { JobStatus } from '@sandbar/contract/exec-states.ts';
import type { MachineShape } from '@sandbar/contract/host-api.ts';
import type { Image } from '@sandbar/contract/image.ts';
import type { AnyOperationKind, ExpiryAction, Isolation, MachineState } from '@sandbar/contract/machine-states.ts';
import type { SnapshotKind, SnapshotState } from '@sandbar/contract/snapshot.ts';
import type { OpenTerminal } from '@sandbar/contract/terminal.ts';
import type { QuotaDimension } from '@sandbar/contract/tier-limits.ts';
import type { VolumeKind, VolumeState } from '@sandbar/contract/volume-states.ts';
import type { ColumnType, Generated, JSONColumnType, Selectable } from 'kysely';
import type { LedgerTable, MailTable, MeterTable, PaymentEventTable, PriceTable } from './billing-tables.ts';
import type {
  BlobPartTable,
  BlobTable,
  ObjectStoreTable,
  PublicationBlobTable,
  PublicationTable,
} from './blob-tables.ts';

/** The time at which the row was inserted, set by the database. */
export type CreatedAt = ColumnType<Date, never, never>;
type Time = ColumnType<Date | null, never, Date | null>;

/** The account's own limits, which replace those of its tier; null: the limit of the tier applies. */
type AccountLimits = {
  [K in `limit_${QuotaDimension | 'vcpus_per_machine' | 'memory_mb_per_machine'}`]: Generated<number | null>;
};
/** What the account uses now. Updated in the same transaction as the rows that it counts. */
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
    /** True for the account of the service's owner, which the first start creates. */
    is_owner: Generated<boolean>;
    /** True for an account that the owner named an operator. The first account is always one, whatever is here. */
    is_operator: Generated<boolean>;
    /** Allowed requests per second, instead of the configured rates; null: the configured rates apply. */
    rate_mutating: Generated<number | null>;
    rate_exec: Generated<number | null>;
    /** `created_at` of the account's newest activity entry. Each entry of an account has a different time. */
    activity_at: Generated<Date>;
    /** The sum of the wallet's rows in the ledger, changed in the same transaction as the ledger. */
    balance_micros: Generated<number>;
    /** The balance after the last credit. The first warning is sent when a fifth of it is left. */
    full_micros: Generated<number>;
    /** Everything up to this moment has been charged, by the account's clock. */
    charged_until: Generated<Date>;
    /** Since when the balance is zero or less; null while there is money. */
    empty_since: Generated<Date | null>;
    /** The last warning about the balance, and when it was given; null while there is none. */
    notice: Generated<'low' | 'empty' | 'week' | 'day' | null>;
    notice_at: Generated<Date | null>;
    /** The customer's id at the payment provider. */
    payment_customer: Generated<string | null>;
    suspended_at: Generated<Date | null>;
    deleted_at: Generated<Date | null>;
    created_at: CreatedAt;
    updated_at: Generated<Date>;
  };

export type RateBucketTable = { key: string; full_at: Date };

export type IdempotencyKeyTable = {
  account_id: string;
  key: string;
  /** SHA-256 of the normalised create request. */
  fingerprint: Buffer;
  /** The id of the created object is in one of these columns; the two others are null. */
  machine_id: string | null;
  volume_id: string | null;
  snapshot_id: string | null;
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
  /** SHA-256 of the key. The key itself is not stored. */
  key_hash: Buffer;
  created_at: CreatedAt;
  last_used_at: Time;
  expires_at: ColumnType<Date | null, Date | null, Date | null>;
};

/** A session of the dashboard. Its token is stored in the browser's cookie only; the database has its hash. */
export type SessionTable = {
  id: string;
  account_id: string;
  /** SHA-256 of the token, base64url. */
  token_hash: string;
  expires_at: Date;
  /**
   * When the person last proved who they are: by signing in, or by `POST /v1/auth/confirm-password`. 1970 for a sign-in
   * at an OpenID provider that proved nothing (auth/oidc-confirmation.ts).
   */
  confirmed_at: Generated<Date>;
  created_at: CreatedAt;
  updated_at: Generated<Date>;
  ip_address: string | null;
  user_agent: string | null;
};

/** A way for an account to sign in: a password, or a user of the OpenID provider. */
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

/** A link that was sent by e-mail (such as for a password reset) and has not been used yet. */
export type VerificationTable = {
  id: string;
  /** SHA-256 of the secret in the link, base64url. */
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
  /**
   * The file system with the disks of machines: its size, its free space, and the space that only the service may use.
   */
  disk_mb: Generated<number>;
  disk_free_mb: Generated<number>;
  disk_reserve_mb: Generated<number>;
  /** Reserved for machines: the sums over the host's machines in state `provisioning` or `running`. */
  reserved_memory_mb: Generated<number>;
  reserved_vcpus: Generated<number>;
  /** Reserved for the disks of volumes, and of all machines that are not destroyed. */
  reserved_disk_gb: Generated<number>;
  /** How many clones wait in the pool of the host, and how many should. */
  pool_ready: Generated<number>;
  pool_target: Generated<number>;
  images: JSONColumnType<Image[]>;
  /** The shapes of machines of which the host has a template. */
  templates: ColumnType<MachineShape[], string | undefined, string>;
  /** Equal on hosts between which saved memory may move. Null: the agent has not said. */
  processor: string | null;
  /** If true, no new machines or volumes are placed on the host. */
  draining: Generated<boolean>;
  /** A label for people. */
  name: Generated<string>;
  /** HOST:PORT of the agent's TLS listener. Null: the agent of this computer, on its Unix socket. */
  address: string | null;
  /** When the certificate of the agent ends. Null: the agent has none, because it was not joined. */
  certificate_expires_at: Date | null;
  /** If true, stopped machines and kept disks are moved to other hosts. Then `draining` is true too. */
  emptying: Generated<boolean>;
  /** Since when the host is no part of the fleet. Its row stays for the machines that were on it. */
  removed_at: Date | null;
  /** The replica that listens to the host's events and compares the host with the rows, and until when. */
  listener_id: string | null;
  listener_until: Date | null;
  /** Since when the replica that listens to the host has not reached it. Null while its event stream is open. */
  away_since: Date | null;
  created_at: CreatedAt;
  seen_at: ColumnType<Date, never, Date>;
};

/** The replicas of the control plane. One whose time has passed is dead. */
export type ReplicaTable = { id: string; alive_until: Date };

/** Tokens with which hosts join. Each is used once. */
export type HostTokenTable = {
  id: string;
  /** SHA-256 of the token. */
  token_hash: Buffer;
  created_at: CreatedAt;
  expires_at: Date;
  used_at: Date | null;
  /** The host that joined with it. */
  host_id: string | null;
  /** SHA-256 of the public key of that host, by which a repetition of its request is recognised. */
  key_hash: Buffer | null;
};

/** The certificate authorities of the fleet. The newest one signs; all of them are trusted. */
export type FleetAuthorityTable = {
  id: string;
  /** PEM. */
  certificate: string;
  /** The private key, encrypted with a key that is derived from the service's secret. */
  sealed_key: Buffer;
  created_at: CreatedAt;
};

export type MachineTable = {
  id: string;
  account_id: string;
  host_id: string;
  name: string;
  state: MachineState;
  /**
   * Increases with every change that the host has to make to the machine. The host ignores calls with an older
   * generation.
   */
  generation: number;
  vcpus: number;
  memory_mb: number;
  rootfs_size_gb: number;
  stack: string;
  /** The host assigns the address when it first starts the machine; null until then. */
  private_ip: Generated<string | null>;
  metadata: JSONColumnType<Record<string, unknown>>;
  /** Default environment variables of the machine's jobs. */
  env: ColumnType<Record<string, string>, string | undefined, never>;
  isolation: Isolation;
  error: string | null;
  on_expiry: ExpiryAction;
  created_at: CreatedAt;
  started_at: Time;
  stopped_at: Time;
  destroyed_at: Time;
  /** The snapshot from which the machine was created. */
  snapshot_id: Generated<string | null>;
  /**
   * The root volume from which the machine was created. For a destroyed machine: the volume that now contains its root
   * disk.
   */
  root_volume_id: Generated<string | null>;
};

/** The states of a volume that clients see, and three internal states in which the volume is hidden from clients. */
export type VolumeRowState = VolumeState | 'creating' | 'taken' | 'deleting';

export type VolumeTable = {
  id: string;
  account_id: string;
  /** The host that stores the volume. Changes when the volume moves, as soon as the new host has the whole copy. */
  host_id: string;
  /** Grows with every move, also one that fails. Hosts ignore late calls of earlier moves. */
  generation: Generated<number>;
  name: Generated<string>;
  kind: VolumeKind;
  size_gb: number;
  /** `taken`: a machine that boots from this root volume is being created. */
  state: VolumeRowState;
  /**
   * The machine to which the volume is attached. In the states `taken` and `available`: the machine that is being created
   * with the volume.
   */
  machine_id: Generated<string | null>;
  mount_path: Generated<string | null>;
  /** For a root volume: the stack of the machine whose disk it was. */
  stack: Generated<string | null>;
  /** Why the state is `error`. */
  error: Generated<string | null>;
  created_at: CreatedAt;
};

/** The states of a snapshot that clients see, and two internal states in which the snapshot is hidden from clients. */
export type SnapshotRowState = SnapshotState | 'creating' | 'deleting';

export type SnapshotTable = {
  id: string;
  account_id: string;
  /** The host that stores the snapshot. Without an object store, machines from it are created on this host only. */
  host_id: string;
  machine_id: string;
  name: Generated<string>;
  kind: SnapshotKind;
  size_gb: number;
  stored_bytes: Generated<number>;
  /** The stack and size of the machine when the snapshot was taken. */
  stack: string;
  vcpus: number;
  memory_mb: number;
  state: Generated<SnapshotRowState>;
  /** Why the state is `error`. */
  error: Generated<string | null>;
  created_at: CreatedAt;
};

/** Parameters of an operation besides the ids of its machine, volume and snapshot. */
export type OperationArguments = {
  /** For a destroy: keep the root disk as the volume with this id. */
  keep_volume_id?: string;
  /** For a destroy: how many of the machine's snapshots have been deleted so far. */
  snapshots_deleted?: number;
  /** For an attach: the path at which the volume is mounted. */
  mount_path?: string;
  /** For a create: the data volumes that the machine has from its first boot. */
  volumes?: { volume_id: string; mount_path: string }[];
  /** For a move: the host to which it goes. The operation's own host is the one that has it at the beginning. */
  to_host_id?: string;
  /** For a move of a volume that an attach needs: the machine to which the volume will be attached. */
  for_machine_id?: string;
  /**
   * For a move: what goes to the other host, with the generation of the copy there. For `remove_copy`: the one copy that
   * the operation's host has to delete. Room for the copies is reserved until the operation ends.
   */
  copies?: HostCopy[];
};

/** A disk on a host besides the one that counts. `disk_gb`: the room that is reserved for it, in GiB. */
export type HostCopy = { kind: 'volume' | 'machine'; id: string; generation: number; disk_gb: number };

export type OperationTable = {
  id: Generated<string>;
  account_id: string;
  host_id: string;
  machine_id: string | null;
  volume_id: Generated<string | null>;
  snapshot_id: Generated<string | null>;
  kind: AnyOperationKind;
  args: ColumnType<OperationArguments, string, string>;
  /** Who requested the operation, for the activity feed. */
  actor: ActivityActor;
  /** True while the operation is being undone after a refusal. */
  undoing: Generated<boolean>;
  /** The random token of the process that performs the operation. The process renews the claim while it is alive. */
  claim_token: Generated<string | null>;
  claim_expires_at: ColumnType<Date | null, Date | null | undefined, Date | null>;
  attempts: Generated<number>;
  /** Why the last attempt failed. For a finished operation: why it was not done, or null if it succeeded. */
  last_error: Generated<string | null>;
  error_code: Generated<ErrorCode | null>;
  /** The time from which the reconciler may claim the operation. */
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
  /** Whether the host has dropped the output of the job. This happens only to ended jobs. */
  output_expired: Generated<boolean>;
  created_at: CreatedAt;
  finished_at: Time;
};

/** What a ticket opens: a new terminal, or a connection to a terminal that runs (`opens` is null). */
export type WantedTerminal = {
  opens: Omit<OpenTerminal, 'id' | 'cols' | 'rows' | 'idle_sec'> | null;
  /** Null: the size of a terminal that runs stays. */
  size: { cols: number; rows: number } | null;
};

/** A ticket that was not spent yet. */
export type TerminalTicketTable = {
  /** SHA-256 of the ticket. The ticket itself is not stored. */
  ticket_hash: Buffer;
  account_id: string;
  machine_id: string;
  terminal_id: string;
  wanted: ColumnType<WantedTerminal, string, never>;
  /** The kind and the id of the credential of the client that got the ticket. */
  via: 'key' | 'session';
  credential_id: string;
  expires_at: Date;
};
/** A port that everybody may use. A port without a row is private. */
/** A device login: a program asks for an API key, and a person answers in the dashboard. */
export type DeviceLoginTable = {
  id: string;
  /** SHA-256 of the secret that the program polls with. */
  device_code_hash: Buffer;
  /** HMAC of the short code that the person types (device-login/codes.ts). */
  user_code_hash: Buffer;
  /** What the program says is the name of its computer. The key gets this name. */
  name: string;
  /** The IP address of the request. */
  address: string;
  state: Generated<DeviceLoginState>;
  /** Who answered, and the scope that they chose; null while nobody did. A denial has no scope. */
  account_id: Generated<string | null>;
  scope: Generated<KeyScope | null>;
  /** How long the program must wait between two polls. */
  interval_sec: number;
  polled_at: Generated<Date | null>;
  created_at: CreatedAt;
  expires_at: Date;
};

/** `taken`: the program has its API key. */
export type DeviceLoginState = 'pending' | 'approved' | 'denied' | 'taken';

/** How many wrong codes of device logins an account has entered. Counts from the beginning 10 minutes after the last one. */
export type DeviceGuessTable = { account_id: string; wrong: number; last_wrong_at: Date };

export type PublicPortTable = { machine_id: string; port: number };

export type Database = {
  accounts: AccountTable;
  activity: ActivityTable;
  idempotency_keys: IdempotencyKeyTable;
  ledger: LedgerTable;
  mails: MailTable;
  meters: MeterTable;
  payment_events: PaymentEventTable;
  prices: PriceTable;
  rate_buckets: RateBucketTable;
  api_keys: ApiKeyTable;
  credentials: CredentialTable;
  device_guesses: DeviceGuessTable;
  device_logins: DeviceLoginTable;
  sessions: SessionTable;
  verifications: VerificationTable;
  hosts: HostTable;
  replicas: ReplicaTable;
  host_tokens: HostTokenTable;
  fleet_authorities: FleetAuthorityTable;
  machines: MachineTable;
  execs: ExecTable;
  volumes: VolumeTable;
  snapshots: SnapshotTable;
  object_stores: ObjectStoreTable;
  blobs: BlobTable;
  blob_parts: BlobPartTable;
  publications: PublicationTable;
  publication_blobs: PublicationBlobTable;
  operations: OperationTable;
  terminal_tickets: TerminalTicketTable;
  public_ports: PublicPortTable;
};

export type AccountRow = Selectable<AccountTable>;
export type ApiKeyRow = Selectable<ApiKeyTable>;
export type HostRow = Selectable<HostTable>;
export type MachineRow = Selectable<MachineTable>;
export type VolumeRow = Selectable<VolumeTable>;
export type SnapshotRow = Selectable<SnapshotTable>;
export type OperationRow = Selectable<OperationTable>;
export type ExecRow = Selectable<ExecTable>;
