// Accounts for tests of billing, whose wallets a test fills and empties.
import type { BillingMode } from '@sandbar/contract/account.ts';
import type { UpdateObject } from 'kysely';
import { insertAccount, lockAccount } from '../../src/accounts/store.ts';
import { insertKey } from '../../src/api-keys/store.ts';
import { addEntry } from '../../src/billing/ledger.ts';
import { changeBillingMode } from '../../src/billing/reprice.ts';
import type { AccountRow, Database } from '../../src/db/tables.ts';
import { inTransaction } from '../../src/db/transaction.ts';
import type { Answer, CallOptions, TestBed } from './test-bed.ts';

export const EUR = 1_000_000;

export type Wallet = {
  id: string;
  email: string;
  row: () => Promise<AccountRow>;
  /** Moves the balance to `micros` by a correction of the operator. */
  setBalance: (micros: number) => Promise<void>;
  /** A top-up of 10 EUR. */
  topUp: () => Promise<void>;
  /** Changes how the account pays, as the operator does. */
  setMode: (mode: BillingMode) => Promise<void>;
  /** Writes columns of the account directly, without the service's rules. */
  write: (columns: UpdateObject<Database, 'accounts'>) => Promise<void>;
  /** Sends a request with the account's key. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read fields of many shapes; the test bed checks the schemas.
  api: (method: string, path: string, options?: CallOptions) => Promise<Answer<any>>;
  /** Returns the feed of the account, oldest first, as `action by actor`. */
  feed: () => Promise<string[]>;
};

let count = 0;

/** Makes a prepaid account, with 10 EUR unless `isNew`. */
export async function openWallet(bed: TestBed, { isNew = false } = {}): Promise<Wallet> {
  const { db } = bed.plane.app;
  const email = `wallet-${++count}@example.test`;
  const id = await insertAccount(db, { email, tier: 'enterprise', billingMode: 'prepaid' });
  const key = await insertKey(db, id, 'full', 'full');
  const row = () => db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  const api: Wallet['api'] = (method, path, options = {}) => bed.api(method, path, { key, ...options });
  const credit = (kind: 'top-up' | 'correction', amountMicros: number) =>
    inTransaction(db, (tx) => addEntry(tx, { accountId: id, kind, amountMicros, note: 'of a test' }));
  const wallet: Wallet = {
    id,
    email,
    row,
    setBalance: async (micros) => {
      await inTransaction(db, async (tx) => {
        const { balance_micros: balance } = await lockAccount(tx, id);
        const amountMicros = micros - balance;
        await addEntry(tx, { accountId: id, kind: 'correction', amountMicros, note: 'of a test' });
      });
    },
    topUp: async () => void (await credit('top-up', 10 * EUR)),
    setMode: (mode) => inTransaction(db, (tx) => changeBillingMode(tx, id, mode)),
    write: async (columns) => void (await db.updateTable('accounts').set(columns).where('id', '=', id).execute()),
    api,
    feed: async () => {
      const { activity } = (await api('GET', '/v1/activity?page_size=200')).json;
      return activity.map(({ action, actor }: Record<string, string>) => `${action} by ${actor}`).reverse();
    },
  };
  if (!isNew) await wallet.topUp();
  return wallet;
}
