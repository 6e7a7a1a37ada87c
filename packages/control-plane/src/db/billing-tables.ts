// The types of the tables of billing: the ledger, price lists, meters, mails and handled payment events.
import type { LedgerKind, ResourceKind } from '@sandbar/contract/billing.ts';
import type { ColumnType, Generated, JSONColumnType } from 'kysely';
import type { CreatedAt } from './tables.ts';

/**
 * One row is one transaction. Each column that ends in `_micros`, except `balance_micros`, is what the transaction adds
 * to one book, in millionths of a euro. The books of a row sum to zero. Rows are never changed.
 */
export type LedgerTable = {
  id: Generated<string>;
  account_id: string;
  kind: LedgerKind;
  /** The customer's wallet; negative for a charge. */
  amount_micros: number;
  /** Money from the payment provider. */
  payments_micros: Generated<number>;
  /** Credit that the operator gave away. */
  bonuses_micros: Generated<number>;
  corrections_micros: Generated<number>;
  sales_vcpu_micros: Generated<number>;
  sales_memory_micros: Generated<number>;
  sales_storage_micros: Generated<number>;
  sales_snapshot_micros: Generated<number>;
  /** The wallet after this transaction. */
  balance_micros: number;
  /** For a charge: the interval that it covers, and the meters that ran in it. */
  charged_from: Date | null;
  charged_to: Date | null;
  meter_ids: number[] | null;
  /** Names a payment, a refund or a bonus, so that it is recorded only once. */
  reference: string | null;
  note: Generated<string>;
  /** By the account's clock (`activity_at`): no two rows of an account have the same time. */
  created_at: ColumnType<Date, Date, never>;
};

/** A price list in micro-euro per unit and hour. Rows are never changed; the newest one is in force. Id 0 is free. */
export type PriceTable = {
  id: Generated<number>;
  vcpu_hour_micros: number;
  memory_gib_hour_micros: number;
  storage_gib_hour_micros: number;
  snapshot_gib_hour_micros: number;
  created_at: CreatedAt;
};

/** An interval in which a resource was in use, in one size and at one price. Only `ended_at` ever changes, once. */
export type MeterTable = {
  id: Generated<number>;
  account_id: string;
  resource_kind: ResourceKind;
  resource_id: string;
  vcpus: number;
  memory_mb: number;
  storage_gb: number;
  /** Stored bytes of a snapshot in MiB, rounded up. */
  snapshot_mb: number;
  price_id: number;
  /** The machine's metadata when the interval began. */
  metadata: JSONColumnType<Record<string, unknown>>;
  /** By the account's clock (`activity_at`), like the feed's entry of the same change. */
  started_at: Date;
  /** `infinity` (in JavaScript the number Infinity) while the meter is open. */
  ended_at: ColumnType<Date | number, never, Date>;
};

/** A mail that waits to be sent. The row is deleted when the mail server has accepted the mail. */
export type MailTable = {
  id: Generated<string>;
  recipient: string;
  subject: string;
  body: string;
  attempts: Generated<number>;
  due_at: Generated<Date>;
  created_at: CreatedAt;
};

/** A webhook event of the payment provider that has been handled, by its id. */
export type PaymentEventTable = { id: string; created_at: CreatedAt };
