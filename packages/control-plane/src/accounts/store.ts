// SQL of accounts.

import type { BillingMode, Tier } from '@sandbar/contract/account.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { ValidCredential } from '../auth/credential-watch.ts';
import type { Db, Tx } from '../db/database.ts';
import { isUniqueViolation } from '../db/failures.ts';
import { statement } from '../db/statement.ts';
import type { AccountRow } from '../db/tables.ts';

export type NewAccount = {
  email: string;
  tier: Tier;
  billingMode?: BillingMode;
  /** Whether the account belongs to the owner of the service. At most one account does. */
  isOwner?: boolean;
};

/** Makes an account and returns its id. Throws `conflict` when another account has the e-mail address. */
export async function insertAccount(db: Db | Tx, account: NewAccount): Promise<string> {
  const id = uuidv7();
  const { tier, billingMode = 'unmetered', isOwner = false } = account;
  // E-mail addresses are stored in lower case. This address counts as verified, because the operator gave it.
  const email = account.email.toLowerCase();
  try {
    await db
      .insertInto('accounts')
      .values({ id, email, email_verified: true, tier, billing_mode: billingMode, is_owner: isOwner })
      .execute();
  } catch (error) {
    if (!isUniqueViolation(error, 'accounts_email')) throw error;
    throw new ServiceError('conflict', 'There is an account with this email already.', { cause: error });
  }
  return id;
}

/** The account of the owner of the service. */
export function findOwner(db: Db | Tx): Promise<{ id: string; email: string } | undefined> {
  return db.selectFrom('accounts').select(['id', 'email']).where('is_owner', '=', true).executeTakeFirst();
}

/** Whether an account is an operator of the service. The first account always is. */
export const isOperator = ({ is_owner, is_operator }: Pick<AccountRow, 'is_owner' | 'is_operator'>): boolean =>
  is_owner || is_operator;

/** Reads the row of an account that must exist, such as that of an authenticated caller. */
export function getAccount(db: Db | Tx, id: string): Promise<AccountRow> {
  return db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
}

/** Reads the row of an account and locks it until the transaction ends. */
export async function lockAccount(tx: Tx, accountId: string): Promise<AccountRow> {
  const [row] = await selectForUpdate(tx, accountId);
  if (!row) throw new Error('an account went while it was used');
  return row;
}

const selectForUpdate = statement((db, id: string) =>
  db.selectFrom('accounts').selectAll().where('id', '=', id).forNoKeyUpdate(),
);

/** The accounts among `ids` that are not deleted. */
export function findLiveAccounts(db: Db, ids: readonly string[]): Promise<ValidCredential[]> {
  return db
    .selectFrom('accounts')
    .select(['id', sql<boolean>`suspended_at is not null`.as('isSuspended')])
    .where(sql<boolean>`id = any(${ids}::uuid[])`)
    .where('deleted_at', 'is', null)
    .execute();
}

/** Throws `not_found` when there is no such account, or it is deleted. */
export async function checkAccount(db: Db | Tx, id: string): Promise<void> {
  const row = await db
    .selectFrom('accounts')
    .select('id')
    .where('id', '=', id)
    .where('deleted_at', 'is', null)
    .executeTakeFirst();
  if (!row) throw new ServiceError('not_found', 'There is no such account.');
}
