// The requests and answers between the operator's command (`sandbar admin`) and the control plane, over the admin
// socket. They are not part of the public API.
import { type Static, Type } from 'typebox';
import { BILLING_MODES, type BillingMode, TIERS, type Tier } from './account.ts';
import { KEY_SCOPES } from './api-key.ts';
import { OneOf } from './fields.ts';
import type { Isolation } from './machine.ts';
import { EMAIL_PATTERN, NO_NUL_PATTERN } from './patterns.ts';
import { QUOTA_DIMENSIONS, type QuotaDimension } from './quota.ts';

const strict = { additionalProperties: false };
const Eur = Type.String({ maxLength: 20, description: 'EUR, such as "25" or "12.34".' });

export const CREDIT_KINDS = ['top-up', 'bonus', 'correction'] as const;
/**
 * The largest credit or correction, EUR: far above any real payment, and far below 2^53 micro-euro, where sums get
 * inexact.
 */
export const CREDIT_EUR_MAX = 1_000_000;

/** The limits of its tier that the operator can override for an account. The names are those in requests. */
export const ACCOUNT_LIMITS = [...QUOTA_DIMENSIONS, 'vcpus_per_machine', 'memory_mb_per_machine'] as const;
export const ACCOUNT_RATES = ['rate_mutating', 'rate_exec'] as const;
type LimitName = (typeof ACCOUNT_LIMITS)[number];
export type OverrideName = LimitName | (typeof ACCOUNT_RATES)[number];
/** The largest override: far above any real limit, and far below the maximum of an integer column. */
export const OVERRIDE_MAX = 1_000_000_000;
/** The highest rate, in requests a second. A rate bucket counts whole microseconds, at least one for each token. */
export const RATE_MAX = 1_000_000;

export const AdminEmail = Type.String({ minLength: 3, maxLength: 254, pattern: EMAIL_PATTERN });

export const AccountCreate = Type.Object(
  {
    email: AdminEmail,
    tier: Type.Optional(OneOf(TIERS)),
    billing_mode: Type.Optional(OneOf(BILLING_MODES)),
    credit_eur: Type.Optional(Eur),
  },
  strict,
);
export type AccountCreate = Static<typeof AccountCreate>;

export const AccountTier = Type.Object({ tier: OneOf(TIERS) }, strict);
export const AccountCredit = Type.Object(
  {
    eur: Eur,
    as: OneOf(CREDIT_KINDS),
    reference: Type.Optional(Type.String({ minLength: 1, maxLength: 255, pattern: NO_NUL_PATTERN })),
    note: Type.Optional(Type.String({ maxLength: 1000, pattern: NO_NUL_PATTERN })),
  },
  strict,
);
export type AccountCredit = Static<typeof AccountCredit>;
export const AccountKey = Type.Object(
  { scope: Type.Optional(OneOf(KEY_SCOPES)), name: Type.Optional(Type.String({ maxLength: 255 })) },
  strict,
);

/** A number sets the override, null removes it, and an override that the request does not name stays as it is. */
const override = (minimum: number, maximum: number) =>
  Type.Optional(Type.Unsafe<number | null>({ type: ['integer', 'null'], minimum, maximum }));
const overrides = (names: readonly OverrideName[], minimum: number, maximum: number) =>
  Object.fromEntries(names.map((name) => [name, override(minimum, maximum)]));
export const AccountOverrides = Type.Unsafe<Partial<Record<OverrideName, number | null>>>(
  Type.Object(
    { ...overrides(ACCOUNT_LIMITS, 0, OVERRIDE_MAX), ...overrides(ACCOUNT_RATES, 1, RATE_MAX) },
    { ...strict, minProperties: 1 },
  ),
);

/** The key and the password are shown once, in this answer. */
export type NewAccount = { account_id: string; api_key: string; email: string; password: string };
export type NewPassword = { account_id: string; email: string; password: string };
export type NewKey = { account_id: string; api_key: string };

export type AccountSummary = {
  id: string;
  email: string;
  tier: Tier;
  billing_mode: BillingMode;
  /** EUR, six decimals. */
  balance: string;
  is_owner: boolean;
  machines: number;
  created_at: string;
  /** When the account was suspended; null if it is not. A suspended account can read, but change nothing. */
  suspended_at: string | null;
  /** When the account was deleted. Its ledger, meters and activity feed stay. */
  deleted_at: string | null;
};

/** The answer to a credit. `is_new` is false when the ledger already had an entry with this reference. */
export type AccountCredited = AccountDetails & { is_new: boolean };

export type AccountDetails = AccountSummary & {
  limits: Record<LimitName, { limit: number; override: number | null }>;
  used: Record<QuotaDimension, number>;
  /** `per_sec`: requests a second. `burst`: how many may come at once. */
  rates: Record<'mutating' | 'exec', { per_sec: number; burst: number; override: number | null }>;
};

export type HostSummary = {
  id: string;
  /** `away`: this replica of the control plane has no connection to the host. */
  state: 'ready' | 'draining' | 'away';
  /** Whether the host takes no new machines; independent of its state. */
  draining: boolean;
  version: string;
  isolation: Isolation;
  cpus: number;
  memory_mb: number;
  /** The file system with the machines: its size, its free space, and the space that only the service may use. */
  disk_mb: number;
  disk_free_mb: number;
  disk_reserve_mb: number;
  /** Reserved for its running machines. */
  reserved_vcpus: number;
  reserved_memory_mb: number;
  /** Reserved for the disks of its machines, stopped ones included, and for its volumes. */
  reserved_disk_gb: number;
  /** Number of machines on the host, stopped ones included. */
  machines: number;
  last_seen_at: string;
};

/** What a finding of an audit is about. `host`: what a host found when it checked itself. */
export const AUDIT_AREAS = [
  'host',
  'machine',
  'volume',
  'snapshot',
  'job',
  'quota',
  'reservation',
  'operation',
  'idempotency key',
  'ledger',
  'meter',
] as const;
export type AuditArea = (typeof AUDIT_AREAS)[number];

/** A difference between database and hosts that two checks in a row saw and that no running operation explains. */
export type AuditFinding = {
  area: AuditArea;
  /** Null when the finding is about the database only. */
  host_id: string | null;
  /** What the finding is about: an id, or a name that the host gave. */
  subject: string;
  /** What is wrong, as a sentence. */
  detail: string;
  /** What `--fix` would do, such as "remove it from its host"; null when no repair is safe. */
  fix: string | null;
};

export type Audit = {
  findings: AuditFinding[];
  /** The hosts that have machines or volumes but did not answer, each with the reason. */
  not_looked_at: { host_id: string; why: string }[];
  looked_at: { hosts: number; machines: number; volumes: number; snapshots: number; accounts: number };
};

/** The answer to `--fix`: the findings that remain, and the findings that were repaired. */
export type AuditFix = Audit & { fixed: (AuditFinding & { did: string })[] };
