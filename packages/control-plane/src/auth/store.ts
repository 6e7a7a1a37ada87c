// The SQL of sessions that better-auth does not provide: the query that authenticates a request, and the removal of
// expired sessions.
import { sql } from 'kysely';
import { deleteInBatches } from '../db/batches.ts';
import type { Db, Tx } from '../db/database.ts';
import type { Caller } from '../http/route-config.ts';
import { hashToken } from './cookie.ts';

/**
 * Returns the session's account, by one query on the unique index of token hashes. Undefined for an unknown or expired
 * session.
 */
export async function findSessionCaller(db: Db, token: string): Promise<Caller | undefined> {
  const row = await db
    .selectFrom('sessions')
    .innerJoin('accounts', 'accounts.id', 'sessions.account_id')
    .select(['sessions.id', 'sessions.account_id', 'accounts.rate_mutating', 'accounts.rate_exec'])
    .where('token_hash', '=', hashToken(token))
    .where('expires_at', '>', sql<Date>`now()`)
    .executeTakeFirst();
  if (!row) return undefined;
  const rates = { mutating: row.rate_mutating, exec: row.rate_exec };
  return { accountId: row.account_id, rates, scope: 'full', via: 'session', credentialId: row.id };
}

/** The ids among `ids` whose session exists and has not expired. */
export async function findValidSessions(db: Db, ids: readonly string[]): Promise<string[]> {
  const rows = await db
    .selectFrom('sessions')
    .select('id')
    .where(sql<boolean>`id = any(${ids}::uuid[])`)
    .where('expires_at', '>', sql<Date>`now()`)
    .execute();
  return rows.map(({ id }) => id);
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
