// Suspends, resumes and deletes accounts. Only the owner of the data directory does this (admin/account-status.ts). The
// machines of a suspended account and the resources of a deleted one are left to the spend guard and the reclaimer.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { dropLinks } from '../auth/store.ts';
import type { Tx } from '../db/database.ts';
import type { AccountRow } from '../db/tables.ts';

/**
 * Suspends an account: it can still read, but change nothing. Does nothing if the account is suspended already. Throws
 * `conflict` for the account of the service's owner and for a deleted account.
 */
export async function suspendAccount(tx: Tx, accountId: string): Promise<void> {
  requireNotDeleted(await lockToChange(tx, accountId));
  await tx
    .updateTable('accounts')
    .set({ suspended_at: sql`coalesce(suspended_at, now())`, updated_at: sql`now()` })
    .where('id', '=', accountId)
    .execute();
  // A link sets a new password without signing in. While the account is suspended, it gets no other one.
  await dropLinks(tx, accountId);
}

/**
 * Ends a suspension. Machines that were stopped stay stopped. Throws `conflict` for the account of the service's owner
 * and for a deleted account.
 */
export async function resumeAccount(tx: Tx, accountId: string): Promise<void> {
  requireNotDeleted(await lockToChange(tx, accountId));
  await tx
    .updateTable('accounts')
    .set({ suspended_at: null, updated_at: sql`now()` })
    .where('id', '=', accountId)
    .execute();
}

/**
 * Deletes an account: removes its keys, sessions and all other credentials, and frees its e-mail address for another
 * account. The row itself stays, for the ledger, the meters and the activity feed. Does nothing if the account is
 * deleted already. Throws `conflict` for the account of the service's owner.
 */
export async function deleteAccount(tx: Tx, accountId: string): Promise<void> {
  const account = await lockToChange(tx, accountId);
  if (account.deleted_at !== null) return;
  // RFC 2606 reserves `.invalid`, so no mail ever reaches this address, and nobody can prove that it is theirs. It is
  // random, or somebody could sign up with it in advance, and the account could not be deleted.
  const nobody = { email: `${randomUUID()}@deleted.invalid`, email_verified: false, name: '', image: null };
  await tx
    .updateTable('accounts')
    .set({ ...nobody, is_operator: false, deleted_at: sql`now()`, updated_at: sql`now()` })
    .where('id', '=', accountId)
    .execute();
  // A row that a parallel request adds after this is of no use: each look-up of a credential checks `deleted_at`.
  for (const table of ['api_keys', 'sessions', 'credentials', 'terminal_tickets', 'idempotency_keys'] as const) {
    await tx.deleteFrom(table).where('account_id', '=', accountId).execute();
  }
  await dropLinks(tx, accountId);
}

/** Throws `conflict` for a deleted account. */
export function requireNotDeleted({ deleted_at }: Pick<AccountRow, 'deleted_at'>): void {
  if (deleted_at !== null) throw new ServiceError('conflict', 'The account is deleted.');
}

/**
 * Locks the row of an account that must exist, for a change of any column. Throws `conflict` for the account of the
 * service's owner. The e-mail address has a unique index, so its change needs PostgreSQL's strongest row lock. If that
 * lock were taken later, it could deadlock with a transaction that inserts a row of this account and then locks the
 * account.
 */
async function lockToChange(tx: Tx, accountId: string): Promise<AccountRow> {
  const account = await tx
    .selectFrom('accounts')
    .selectAll()
    .where('id', '=', accountId)
    .forUpdate()
    .executeTakeFirstOrThrow();
  if (account.is_owner) {
    throw new ServiceError('conflict', "The account of the service's owner can be neither suspended nor deleted.");
  }
  return account;
}
