// The operator's requests and answers about prices, billing modes and invoices, over the admin socket. Amounts are EUR
// with six decimals, as text, as in the public API.
import { type Static, Type } from 'typebox';
import { BILLING_MODES, type BillingMode } from './account.ts';
import type { CURRENCY, LedgerKind, USAGE_UNITS, UsageKind } from './billing.ts';
import { OneOf } from './fields.ts';

const strict = { additionalProperties: false };

export const AccountBilling = Type.Object({ billing_mode: OneOf(BILLING_MODES) }, strict);

/** The names of the prices in a price list, in display order. Each is the price of one unit for one hour. */
export const PRICE_NAMES = ['vcpu_hour', 'memory_gib_hour', 'storage_gib_hour', 'snapshot_gib_hour'] as const;
export type PriceName = (typeof PRICE_NAMES)[number];

const Price = Type.Optional(Type.String({ maxLength: 20, description: 'EUR, such as "0.05".' }));

/** The prices to change; the others stay as they are. */
export const PricesSet = Type.Object(
  Object.fromEntries(PRICE_NAMES.map((name) => [name, Price])) as Record<PriceName, typeof Price>,
  { ...strict, minProperties: 1 },
);
export type PricesSet = Static<typeof PricesSet>;

/** The price list in force, which applies to all prepaid accounts. Prices are EUR with six decimals. */
export type Prices = { currency: typeof CURRENCY; prices: Record<PriceName, string>; since: string };

/** The month of the requested invoice, as YYYY-MM. */
export const InvoiceQuery = Type.Object({ month: Type.String({ maxLength: 20 }) }, strict);

/**
 * What changed a wallet in one month, UTC. An amount is positive when it adds money to the wallet, and negative when it
 * takes money out. So `opening` plus all amounts of `money` and `use` equals `closing`.
 */
export type Invoice = {
  account_id: string;
  email: string;
  billing_mode: BillingMode;
  currency: typeof CURRENCY;
  month: string;
  /** The first instant of the month, and the first instant of the next month. */
  from: string;
  to: string;
  /** Whether the month is over. Until then, new entries still change the invoice. */
  is_final: boolean;
  opening: string;
  closing: string;
  /** The sum of each kind of entry except charges. `entries`: how many entries of this kind the month has. */
  money: { kind: LedgerKind; entries: number; amount: string }[];
  /**
   * The charges of the month, one line for each kind and price. `quantity` is in `unit`, rounded down to six decimals.
   * `amount` is negative.
   */
  use: {
    kind: UsageKind;
    unit: (typeof USAGE_UNITS)[UsageKind];
    quantity: string;
    price: string;
    amount: string;
  }[];
};
