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
export const findAccount = async (db: Db | Tx, idOrEmail: string): Promise<AccountRow> =>
  requireFound(await selectAccount(db, idOrEmail).executeTakeFirst());

/**
 * As `findAccount`, and locks the row for a change of any column. Whoever checks the row and then changes the account
 * needs the lock, because a parallel request may name the account an operator. accounts/status.ts explains why it is
 * the strongest lock.
 */
export const findAccountToChange = async (tx: Tx, idOrEmail: string): Promise<AccountRow> =>
  requireFound(await selectAccount(tx, idOrEmail).forUpdate().executeTakeFirst());

function selectAccount(db: Db | Tx, idOrEmail: string) {
  const accounts = db.selectFrom('accounts').selectAll();
  return UUID.test(idOrEmail)
    ? accounts.where('id', '=', idOrEmail)
    : accounts.where('email', '=', idOrEmail.toLowerCase());
}

function requireFound(row: AccountRow | undefined): AccountRow {
  if (!row) throw new ServiceError('not_found', 'There is no account with this id or e-mail address.');
  return row;
}

/** Sets columns of the account. */
export async function updateAccount(
  db: Db | Tx,
  id: string,
  set: Partial<
    Pick<AccountRow, 'tier' | 'is_operator' | (`limit_${string}` & keyof AccountRow) | 'rate_mutating' | 'rate_exec'>
  >,
): Promise<void> {
  await db
    .updateTable('accounts')
    .set({ ...set, updated_at: sql<Date>`now()` })
    .where('id', '=', id)
    .execute();
}
