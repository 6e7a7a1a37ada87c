// Billing as clients see it: use, the wallet's ledger, top-ups, and the names of what is charged. Amounts are EUR with
// six decimals, as text, because a floating-point number would round them.
import { type Static, Type } from 'typebox';
import { Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';
import { EUR_PATTERN, QUANTITY_PATTERN, TOP_UP_PATTERN, USAGE_GROUP_PATTERN } from './patterns.ts';

export const CURRENCY = 'EUR';

/** The kinds of use that have a price. */
export const USAGE_KINDS = ['vcpu', 'memory', 'storage', 'snapshot'] as const;
export type UsageKind = (typeof USAGE_KINDS)[number];

/** The unit of each kind. Memory, storage and snapshots are counted in GiB. */
export const USAGE_UNITS = {
  vcpu: 'vcpu_hour',
  memory: 'gib_hour',
  storage: 'gib_hour',
  snapshot: 'gib_hour',
} as const satisfies Record<UsageKind, string>;

export const RESOURCE_KINDS = ['machine', 'volume', 'snapshot'] as const;
export type ResourceKind = (typeof RESOURCE_KINDS)[number];

/**
 * The kinds of ledger entries. `charge`: the cost of what was used in an interval. `top-up`: money that was paid.
 * `bonus`: credit as a gift. `refund` and `dispute`: money that went back to the payer. `refund-reversal` and
 * `dispute-reversal`: this money was returned to the wallet, because the refund failed or the dispute was won.
 * `correction`: an adjustment by the operator.
 */
export const LEDGER_KINDS = [
  'top-up',
  'bonus',
  'charge',
  'refund',
  'refund-reversal',
  'dispute',
  'dispute-reversal',
  'correction',
] as const;
export type LedgerKind = (typeof LEDGER_KINDS)[number];

const Quantity = Type.String({
  pattern: QUANTITY_PATTERN,
  description: 'How many units, such as GiB-hours, rounded down to six decimals.',
});
const Eur = (description: string) => Type.String({ pattern: EUR_PATTERN, description });

/** The longest range of a usage query, in days. */
export const USAGE_DAYS_MAX = 400;
/** The most groups in the answer to a usage query, and the most characters of a metadata value by which it groups. */
export const USAGE_GROUPS_MAX = 50_000;
export const USAGE_VALUE_MAX = 256;

export const UsageQuery = Type.Object(
  {
    from: Type.Optional(Timestamp('RFC 3339, inclusive. Default: the first of this month, UTC.')),
    to: Type.Optional(Timestamp(`RFC 3339, exclusive. Default: now. At most ${USAGE_DAYS_MAX} days after from.`)),
    group_by: Type.Optional(
      Type.String({
        default: 'kind',
        maxLength: 300,
        pattern: USAGE_GROUP_PATTERN,
        description:
          'day, resource, kind or metadata.KEY. metadata.KEY groups by the value that the machine had for KEY when the ' +
          'metered interval began.',
      }),
    ),
    machine_id: Type.Optional(Uuid('Only the use of this machine.')),
  },
  { additionalProperties: false },
);
export type UsageQuery = Static<typeof UsageQuery>;

export const UsageItem = Type.Object({
  kind: OneOf(USAGE_KINDS),
  resource_kind: Nullable(OneOf(RESOURCE_KINDS, { description: 'With group_by=resource.' })),
  resource_id: Nullable(Uuid('With group_by=resource.')),
  day: Nullable(Type.String({ description: 'With group_by=day: the day in UTC, such as 2026-01-31.' })),
  metadata_value: Nullable(
    Type.String({
      description: `With group_by=metadata.KEY: the first ${USAGE_VALUE_MAX} characters of KEY's value; null where there was none.`,
    }),
  ),
  quantity: Quantity,
  unit: OneOf(['vcpu_hour', 'gib_hour']),
  amount: Eur('EUR. The amounts of all items sum to total.'),
});
export type UsageItem = Static<typeof UsageItem>;

export const Usage = Type.Object(
  {
    currency: OneOf([CURRENCY]),
    balance: Eur('The balance of the wallet now, EUR.'),
    from: Timestamp('The beginning of the range.'),
    to: Timestamp(
      'The end of the range: never later than now and, while a prepaid account uses something, never later than the ' +
        'time up to which it has been charged.',
    ),
    total: Eur('What was charged for the use in this range, EUR; 0 for an unmetered account.'),
    items: Type.Array(UsageItem),
  },
  { title: 'Usage' },
);
export type Usage = Static<typeof Usage>;

/** `page_size` of the ledger: the default, and the maximum. */
export const LEDGER_PAGE = { default: 50, max: 1000 } as const;

export const LedgerQuery = Type.Object(
  {
    kind: Type.Optional(OneOf(LEDGER_KINDS)),
    from: Type.Optional(Timestamp('RFC 3339. The oldest created_at, inclusive.')),
    to: Type.Optional(Timestamp('RFC 3339. The newest created_at, inclusive; not before from.')),
    page_size: Type.Optional(Type.Integer({ minimum: 1, maximum: LEDGER_PAGE.max, default: LEDGER_PAGE.default })),
    cursor: PagingQuery.cursor,
  },
  { additionalProperties: false },
);
export type LedgerQuery = Static<typeof LedgerQuery>;

export const LedgerEntry = Type.Object(
  {
    id: Uuid(),
    kind: OneOf(LEDGER_KINDS),
    amount: Eur('What the entry adds to the wallet, EUR; negative for a charge.'),
    balance: Eur('The balance of the wallet after this entry, EUR.'),
    by_kind: Nullable(
      Type.Object(
        Object.fromEntries(USAGE_KINDS.map((kind) => [kind, Eur('EUR')])) as Record<UsageKind, ReturnType<typeof Eur>>,
        {
          description: 'For a charge: its cost by kind of use, EUR, as positive amounts; null for other entries.',
        },
      ),
    ),
    charged_from: Nullable(Timestamp('For a charge: the beginning of the interval; null for other entries.')),
    charged_to: Nullable(Timestamp('For a charge: the end of the interval; null for other entries.')),
    reference: Nullable(
      Type.String({
        description: 'A unique name of the payment, refund, dispute or bonus; null for entries without one.',
      }),
    ),
    note: Type.String(),
    created_at: Timestamp(),
  },
  { title: 'LedgerEntry' },
);
export type LedgerEntry = Static<typeof LedgerEntry>;

export const LedgerList = Type.Object(
  {
    entries: Type.Array(LedgerEntry),
    next_cursor: Type.String({ description: 'Empty at the end.' }),
  },
  { title: 'LedgerList' },
);
export type LedgerList = Static<typeof LedgerList>;

export const LedgerParams = Type.Object({ id: Uuid('The entry.') });

/** The part of a charge that is for one kind of use of one resource. */
export const ChargeLine = Type.Object({
  resource_kind: OneOf(RESOURCE_KINDS),
  resource_id: Uuid(),
  kind: OneOf(USAGE_KINDS),
  from: Timestamp(),
  to: Timestamp(),
  quantity: Quantity,
  unit: OneOf(['vcpu_hour', 'gib_hour']),
  price: Eur('EUR per unit.'),
  amount: Eur('EUR'),
});
export type ChargeLine = Static<typeof ChargeLine>;

/**
 * A ledger entry. A charge has lines; each says what a resource used, how long and at which price. Others have none.
 */
export const LedgerDetails = Type.Object(
  { ...LedgerEntry.properties, lines: Type.Array(ChargeLine) },
  { title: 'LedgerDetails' },
);
export type LedgerDetails = Static<typeof LedgerDetails>;

/** The bounds of a top-up in EUR. The payment provider takes whole cents. */
export const TOP_UP_EUR = { min: 5, max: 10_000 } as const;

export const TopUpCreate = Type.Object(
  {
    amount: Type.String({
      pattern: TOP_UP_PATTERN,
      description: `EUR with at most two decimals, such as "25" or "12.50"; ${TOP_UP_EUR.min} to ${TOP_UP_EUR.max}.`,
    }),
    currency: Type.Optional(OneOf([CURRENCY])),
  },
  { additionalProperties: false },
);
export type TopUpCreate = Static<typeof TopUpCreate>;

/** A page of the payment provider, to open in a browser. The wallet gets the money when the provider reports it. */
export const PaymentPage = Type.Object({ url: Type.String() }, { title: 'PaymentPage' });
export type PaymentPage = Static<typeof PaymentPage>;
