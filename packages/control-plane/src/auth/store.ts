// The SQL of sessions that better-auth does not provide: the query that authenticates a request, and the removal of
// expired sessions.
import { sql } from 'kysely';
import { deleteInBatches } from '../db/batches.ts';
import type { Db, Tx } from '../db/database.ts';
import type { Caller } from '../http/route-config.ts';
import { hashToken } from './cookie.ts';
import type { ValidCredential } from './credential-watch.ts';

/** How long a sign-in or a check of the password allows the requests of an operator, seconds. */
const CONFIRMED_SEC = 15 * 60;

/**
 * Returns the session's account, by one query on the unique index of token hashes. Undefined for an unknown or expired
 * session, and for a session of a deleted account.
 */
export async function findSessionCaller(db: Db, token: string): Promise<Caller | undefined> {
  const row = await db
    .selectFrom('sessions')
    .innerJoin('accounts', 'accounts.id', 'sessions.account_id')
    .select(['sessions.id', 'sessions.account_id', 'accounts.rate_mutating', 'accounts.rate_exec'])
    .select(sql<boolean>`accounts.is_owner or accounts.is_operator`.as('is_operator'))
    .select(sql<boolean>`sessions.confirmed_at > now() - ${CONFIRMED_SEC} * interval '1 second'`.as('is_confirmed'))
    .select(sql<boolean>`accounts.suspended_at is not null`.as('is_suspended'))
    .where('token_hash', '=', hashToken(token))
    .where('expires_at', '>', sql<Date>`now()`)
    .where('accounts.deleted_at', 'is', null)
    .executeTakeFirst();
  if (!row) return undefined;
  const rates = { mutating: row.rate_mutating, exec: row.rate_exec };
  return {
    accountId: row.account_id,
    rates,
    scope: 'full',
    via: 'session',
    credentialId: row.id,
    ...(row.is_operator ? { operator: row.is_confirmed ? 'confirmed' : 'unconfirmed' } : {}),
    isSuspended: row.is_suspended,
  };
}

/** The sessions among `ids` that exist, have not expired, and are not of a deleted account. */
export function findValidSessions(db: Db, ids: readonly string[]): Promise<ValidCredential[]> {
  return db
    .selectFrom('sessions as s')
    .innerJoin('accounts as a', 'a.id', 's.account_id')
    .select(['s.id', sql<boolean>`a.suspended_at is not null`.as('isSuspended')])
    .where(sql<boolean>`s.id = any(${ids}::uuid[])`)
    .where('s.expires_at', '>', sql<Date>`now()`)
    .where('a.deleted_at', 'is', null)
    .execute();
}

/** Writes that the person of a session has just proved who they are. */
export async function confirmSession(db: Db, id: string): Promise<void> {
  const now = sql<Date>`now()`;
  await db.updateTable('sessions').set({ confirmed_at: now, updated_at: now }).where('id', '=', id).execute();
}

/** Ends a session. */
export async function endSession(db: Db | Tx, token: string): Promise<void> {
  await db.deleteFrom('sessions').where('token_hash', '=', hashToken(token)).execute();
}

/** Makes the unused links that were mailed to an account invalid. */
export async function dropLinks(db: Db | Tx, accountId: string): Promise<void> {
  await db.deleteFrom('verifications').where('value', '=', accountId).execute();
}

/** Removes expired sessions and expired links of mails, until `closing` is aborted. */
export async function sweepSessions(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'sessions', sql`expires_at < now()`, closing);
  await deleteInBatches(db, 'verifications', sql`expires_at < now()`, closing);
}
