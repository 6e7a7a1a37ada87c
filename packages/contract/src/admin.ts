// The operator's requests and answers. `sandbar admin` sends them over the admin socket. The dashboard of an operator
// sends most of them under /admin/v1/.
import { type Static, type TSchema, Type } from 'typebox';
import { BILLING_MODES, TIERS } from './account.ts';
import { ACTIVITY_ACTORS } from './activity.ts';
import { KEY_SCOPES } from './api-key.ts';
import { Nullable, OneOf, Timestamp, Uuid } from './fields.ts';
import { HOST_TOKEN_SEC } from './fleet.ts';
import { ALL_OPERATION_KINDS, ISOLATIONS } from './machine-states.ts';
import { EMAIL_PATTERN, EUR_PATTERN, NO_NUL_PATTERN } from './patterns.ts';
import { QUOTA_DIMENSIONS } from './tier-limits.ts';

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
export type AccountTier = Static<typeof AccountTier>;
/** Whether the account is an operator of the service. */
export const AccountOperator = Type.Object({ is_operator: Type.Boolean() }, strict);
export type AccountOperator = Static<typeof AccountOperator>;

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
export type AccountOverrides = Static<typeof AccountOverrides>;

export const NewAccount = Type.Object(
  { account_id: Uuid(), api_key: Type.String(), email: Type.String(), password: Type.String() },
  { title: 'NewAccount', description: 'The key and the password are shown once, in this answer.' },
);
export type NewAccount = Static<typeof NewAccount>;
export const NewPassword = Type.Object(
  { account_id: Uuid(), email: Type.String(), password: Type.String() },
  { title: 'NewPassword', description: 'The password is shown once, in this answer.' },
);
export type NewPassword = Static<typeof NewPassword>;
export type NewKey = { account_id: string; api_key: string };

const AccountFields = {
  id: Uuid(),
  email: Type.String(),
  tier: OneOf(TIERS),
  billing_mode: OneOf(BILLING_MODES),
  balance: Type.String({ pattern: EUR_PATTERN, description: 'EUR, six decimals.' }),
  is_owner: Type.Boolean({ description: "Whether this is the first account, which belongs to the service's owner." }),
  is_operator: Type.Boolean({
    description: 'Whether this account is an operator of the service. The first account always is.',
  }),
  machines: Type.Integer(),
  created_at: Timestamp(),
  suspended_at: Nullable(
    Timestamp('When the account was suspended; null if it is not. A suspended account can read, but change nothing.'),
  ),
  deleted_at: Nullable(
    Timestamp('When the account was deleted. Its ledger, meters and activity feed stay. Null if it is not.'),
  ),
};
export const AccountSummary = Type.Object(AccountFields, { title: 'AccountSummary' });
export type AccountSummary = Static<typeof AccountSummary>;

export const AccountSummaryList = Type.Object(
  { accounts: Type.Array(AccountSummary, { description: 'All accounts, oldest first.' }) },
  { title: 'AccountSummaryList' },
);
export type AccountSummaryList = Static<typeof AccountSummaryList>;

const Override = Nullable(Type.Integer({ description: 'What the operator set; null: the value of the tier.' }));
const Limit = Type.Object({ limit: Type.Integer(), override: Override });
const AccountRate = Type.Object({
  per_sec: Type.Number({ description: 'Requests a second.' }),
  burst: Type.Integer({ description: 'How many requests may come at once.' }),
  override: Override,
});
const eachOf = <Name extends string, T extends TSchema>(names: readonly Name[], schema: T) =>
  Type.Object(Object.fromEntries(names.map((name) => [name, schema])) as Record<Name, T>);

const AccountDetailFields = {
  ...AccountFields,
  limits: eachOf(ACCOUNT_LIMITS, Limit),
  used: eachOf(QUOTA_DIMENSIONS, Type.Integer()),
  rates: eachOf(['mutating', 'exec'], AccountRate),
};
export const AccountDetails = Type.Object(AccountDetailFields, { title: 'AccountDetails' });
export type AccountDetails = Static<typeof AccountDetails>;

export const AccountCredited = Type.Object(
  {
    ...AccountDetailFields,
    is_new: Type.Boolean({ description: 'False when the ledger already had an entry with this reference.' }),
  },
  { title: 'AccountCredited' },
);
export type AccountCredited = Static<typeof AccountCredited>;

export const HOST_STATES = ['ready', 'cordoned', 'draining', 'away', 'removed'] as const;
/** Something that is still on a host which is being emptied. */
export const HostRemaining = Type.Object(
  {
    kind: OneOf(['machine', 'volume']),
    id: Uuid(),
    why: Type.String({ description: 'A sentence: that it is moving, or why it stays.' }),
  },
  { title: 'HostRemaining' },
);
export type HostRemaining = Static<typeof HostRemaining>;

export const HostSummary = Type.Object(
  {
    id: Uuid(),
    name: Type.String({ description: 'A label for people; may be empty.' }),
    address: Nullable(
      Type.String({ description: 'HOST:PORT of its agent. Null: it is reached on its own computer only.' }),
    ),
    state: OneOf(HOST_STATES, {
      description:
        'cordoned: it takes no new machines. draining: its stopped machines and detached volumes also move away. away: no replica of the control plane ' +
        'has reached it lately. removed: it is no part of the service any more.',
    }),
    draining: Type.Boolean({ description: 'Whether the host takes no new machines; independent of its state.' }),
    version: Type.String(),
    isolation: OneOf(ISOLATIONS),
    cpus: Type.Integer(),
    memory_mb: Type.Integer(),
    disk_mb: Type.Integer({ description: 'The size of the file system with the machines.' }),
    disk_free_mb: Type.Integer({ description: 'The free space of this file system.' }),
    disk_reserve_mb: Type.Integer({ description: 'The space that only the service may use.' }),
    reserved_vcpus: Type.Integer({ description: 'Reserved for its running machines.' }),
    reserved_memory_mb: Type.Integer({ description: 'Reserved for its running machines.' }),
    reserved_disk_gb: Type.Integer({
      description: 'Reserved for the disks of its machines, stopped ones included, and for its volumes.',
    }),
    machines: Type.Integer({ description: 'Machines on the host, stopped ones included.' }),
    volumes: Type.Integer({ description: 'Volumes on the host.' }),
    snapshots: Type.Integer({ description: 'Snapshots on the host.' }),
    remaining: Type.Optional(
      Type.Array(HostRemaining, {
        description:
          'Only for a host that is being emptied: its machines and detached volumes, the first 100. Snapshots and attached ' +
          'volumes go with their machine.',
      }),
    ),
    last_seen_at: Timestamp(),
  },
  { title: 'HostSummary' },
);
export type HostSummary = Static<typeof HostSummary>;

export const RemoveHost = Type.Object(
  {
    force: Type.Optional(
      Type.Boolean({ description: 'Give up the machines, volumes and snapshots that the host still has.' }),
    ),
  },
  { additionalProperties: false, title: 'RemoveHost' },
);
export type RemoveHost = Static<typeof RemoveHost>;

export const HostSummaryList = Type.Object({ hosts: Type.Array(HostSummary) }, { title: 'HostSummaryList' });
export type HostSummaryList = Static<typeof HostSummaryList>;

export const HostTokenCreate = Type.Object(
  {
    expires_in_sec: Type.Optional(
      Type.Integer({
        minimum: 60,
        maximum: HOST_TOKEN_SEC.max,
        description: `For how long the token can be used; ${HOST_TOKEN_SEC.default} by default.`,
      }),
    ),
  },
  strict,
);
export type HostTokenCreate = Static<typeof HostTokenCreate>;

/** A join token that can still be used. */
export const HostToken = Type.Object(
  { id: Uuid(), created_at: Timestamp(), expires_at: Timestamp() },
  { title: 'HostToken' },
);
export type HostToken = Static<typeof HostToken>;

export const HostTokenList = Type.Object({ tokens: Type.Array(HostToken) }, { title: 'HostTokenList' });
export type HostTokenList = Static<typeof HostTokenList>;

export const NewHostToken = Type.Object(
  {
    id: Uuid(),
    token: Type.String({ description: 'Shown only now.' }),
    url: Type.String({ description: 'The address of the service, for the command with which the host joins.' }),
    expires_at: Timestamp(),
  },
  { title: 'NewHostToken' },
);
export type NewHostToken = Static<typeof NewHostToken>;

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
  'publication',
] as const;
export type AuditArea = (typeof AUDIT_AREAS)[number];

export const AuditFinding = Type.Object(
  {
    area: OneOf(AUDIT_AREAS),
    host_id: Nullable(Uuid('Null when the finding is about the database only.')),
    subject: Type.String({ description: 'What the finding is about: an id, or a name that the host gave.' }),
    detail: Type.String({ description: 'What is wrong, as a sentence.' }),
    fix: Nullable(
      Type.String({
        description: 'What --fix would do, such as "remove it from its host"; null when no repair is safe.',
      }),
    ),
  },
  {
    title: 'AuditFinding',
    description:
      'A difference between database and hosts that two checks in a row saw and that no running operation explains.',
  },
);
export type AuditFinding = Static<typeof AuditFinding>;

export const Audit = Type.Object(
  {
    findings: Type.Array(AuditFinding),
    not_looked_at: Type.Array(Type.Object({ host_id: Uuid(), why: Type.String() }), {
      description: 'The hosts that have machines or volumes but did not answer, each with the reason.',
    }),
    looked_at: eachOf(['hosts', 'machines', 'volumes', 'snapshots', 'accounts'], Type.Integer()),
  },
  { title: 'Audit' },
);
export type Audit = Static<typeof Audit>;

/** The answer to `--fix`: the findings that remain, and the findings that were repaired. */
export type AuditFix = Audit & { fixed: (AuditFinding & { did: string })[] };

/** The most operations in an answer. */
export const FAILED_OPERATIONS_MAX = 200;

const FailedOperation = Type.Object(
  {
    id: Uuid(),
    account_id: Uuid(),
    email: Type.String(),
    host_id: Uuid(),
    machine_id: Nullable(Uuid()),
    volume_id: Nullable(Uuid()),
    snapshot_id: Nullable(Uuid()),
    kind: OneOf(ALL_OPERATION_KINDS),
    actor: OneOf(ACTIVITY_ACTORS),
    attempts: Type.Integer(),
    code: Nullable(Type.String({ description: 'The error code of the last attempt.' })),
    error: Type.String({ description: 'Why the last attempt failed.' }),
    created_at: Timestamp(),
    finished_at: Nullable(Timestamp('When the service gave up; null while it tries again.')),
  },
  { title: 'FailedOperation' },
);
export type FailedOperation = Static<typeof FailedOperation>;

export const FailedOperationList = Type.Object(
  { operations: Type.Array(FailedOperation) },
  { title: 'FailedOperationList' },
);
export type FailedOperationList = Static<typeof FailedOperationList>;
