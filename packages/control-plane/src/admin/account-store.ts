// SQL of accounts that only the operator's commands use.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { Type } from 'typebox';
import type { Db, Tx } from '../db/database.ts';
import type { AccountRow } from '../db/tables.ts';

/** An account in the path of a request: its id or its e-mail address. */
export const AccountParams = Type.Object({ account: Type.String({ minLength: 1, maxLength: 254 }) });
export const ACCOUNT_PATH = '/admin/accounts/:account';

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/** All accounts, oldest first. */
export function listAccounts(db: Db | Tx): Promise<AccountRow[]> {
  return db.selectFrom('accounts').selectAll().orderBy('created_at').orderBy('id').execute();
}

/** The account with this id or e-mail address. Throws `not_found`. */
export async function findAccount(db: Db | Tx, idOrEmail: string): Promise<AccountRow> {
  const accounts = db.selectFrom('accounts').selectAll();
  const row = await (UUID.test(idOrEmail)
    ? accounts.where('id', '=', idOrEmail)
    : accounts.where('email', '=', idOrEmail.toLowerCase())
  ).executeTakeFirst();
  if (!row) throw new ServiceError('not_found', 'There is no account with this id or e-mail address.');
  return row;
}

/** Sets columns of the account. */
export async function updateAccount(
  db: Db | Tx,
  id: string,
  set: Partial<Pick<AccountRow, 'tier' | (`limit_${string}` & keyof AccountRow) | 'rate_mutating' | 'rate_exec'>>,
): Promise<void> {
  await db
    .updateTable('accounts')
    .set({ ...set, updated_at: sql<Date>`now()` })
    .where('id', '=', id)
    .execute();
}
