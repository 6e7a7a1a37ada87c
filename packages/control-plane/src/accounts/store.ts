// SQL of accounts.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { v7 as uuidv7 } from 'uuid';
import { type Db, isUniqueViolation, type Tx } from '../db/database.ts';
import type { Tier } from '../db/tables.ts';

export type NewAccount = { email: string; tier: Tier };

/** Makes an account and returns its id. Throws `conflict` when the address is taken. */
export async function insertAccount(db: Db | Tx, { email, tier }: NewAccount): Promise<string> {
  const id = uuidv7();
  try {
    await db.insertInto('accounts').values({ id, email, tier, billing_mode: 'unmetered' }).execute();
  } catch (error) {
    if (!isUniqueViolation(error, 'accounts_email')) throw error;
    throw new ServiceError('conflict', 'There is an account with this email already.', { cause: error });
  }
  return id;
}

/** The oldest account, which is the owner's. */
export function findFirstAccount(db: Db | Tx): Promise<{ id: string; email: string } | undefined> {
  return db
    .selectFrom('accounts')
    .select(['id', 'email'])
    .orderBy('created_at')
    .orderBy('id')
    .limit(1)
    .executeTakeFirst();
}

/** Throws `not_found`. */
export async function checkAccount(db: Db | Tx, id: string): Promise<void> {
  const row = await db.selectFrom('accounts').select('id').where('id', '=', id).executeTakeFirst();
  if (!row) throw new ServiceError('not_found', 'There is no such account.');
}
