// What the operator's command and the control plane say to each other over the admin socket. No part of the public API.
import { type Static, Type } from 'typebox';
import { BILLING_MODES, type BillingMode, TIERS, type Tier } from './account.ts';
import { KEY_SCOPES } from './api-key.ts';
import { OneOf } from './fields.ts';
import type { Isolation } from './machine.ts';
import { EMAIL_PATTERN } from './patterns.ts';
import { QUOTA_DIMENSIONS, type QuotaDimension } from './quota.ts';

const strict = { additionalProperties: false };
const Eur = Type.String({ maxLength: 20, description: 'EUR, such as "25" or "12.34".' });

export const CREDIT_KINDS = ['top-up', 'bonus'] as const;

/** Limits that an account can have of its own, by their names on the wire. */
export const ACCOUNT_LIMITS = [...QUOTA_DIMENSIONS, 'vcpus_per_machine', 'memory_mb_per_machine'] as const;
export const ACCOUNT_RATES = ['rate_mutating', 'rate_exec'] as const;
type LimitName = (typeof ACCOUNT_LIMITS)[number];
export type OverrideName = LimitName | (typeof ACCOUNT_RATES)[number];
/** Far above anything real, far below what an integer column holds. */
export const OVERRIDE_MAX = 1_000_000_000;
/** Tokens of a bucket are counted in microseconds. */
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
export const AccountCredit = Type.Object({ eur: Eur, as: OneOf(CREDIT_KINDS) }, strict);
export const AccountKey = Type.Object(
  { scope: Type.Optional(OneOf(KEY_SCOPES)), name: Type.Optional(Type.String({ maxLength: 255 })) },
  strict,
);

/** A number overrides, null takes the override away, and what is not named stays as it is. */
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

/** What is shown once. */
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
};

export type AccountDetails = AccountSummary & {
  limits: Record<LimitName, { limit: number; override: number | null }>;
  used: Record<QuotaDimension, number>;
  /** Requests a second, and how many may come at once. */
  rates: Record<'mutating' | 'exec', { per_sec: number; burst: number; override: number | null }>;
};

export type HostSummary = {
  id: string;
  /** `away`: this replica of the control plane has no connection to it. */
  state: 'ready' | 'draining' | 'away';
  /** Takes no new machines, whatever its state. */
  draining: boolean;
  version: string;
  isolation: Isolation;
  cpus: number;
  memory_mb: number;
  /** Promised to machines that run. */
  reserved_memory_mb: number;
  /** Machines that exist on it, stopped ones included. */
  machines: number;
  last_seen_at: string;
};

/** What an audit looks at. `host`: what a host found in its own house. */
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
] as const;
export type AuditArea = (typeof AUDIT_AREAS)[number];

/** A difference that two looks in a row saw and that no operation under way explains. */
export type AuditFinding = {
  area: AuditArea;
  /** Null for what is in the database alone. */
  host_id: string | null;
  /** What it is about: an id, or what a host calls it. */
  subject: string;
  /** A sentence. */
  detail: string;
  /** What mending would do, such as "remove it from its host"; null when nothing can be done safely. */
  fix: string | null;
};

export type Audit = {
  findings: AuditFinding[];
  /** Hosts with machines or volumes that could not be asked, and why. */
  not_looked_at: { host_id: string; why: string }[];
  looked_at: { hosts: number; machines: number; volumes: number; snapshots: number; accounts: number };
};

/** After mending: what is still wrong, and what was done. */
export type AuditFix = Audit & { fixed: (AuditFinding & { did: string })[] };
