// SQL of sessions beyond what better-auth does: the one query of every request, and what ends without being asked.
import { sql } from 'kysely';
import { deleteInBatches } from '../db/batches.ts';
import type { Db, Tx } from '../db/database.ts';
import type { Caller } from '../http/route-config.ts';
import { hashToken } from './cookie.ts';

/** Whose session this is: one query, by the unique index of the hash. Undefined when unknown or expired. */
export async function findSessionCaller(db: Db, token: string): Promise<Caller | undefined> {
  const row = await db
    .selectFrom('sessions')
    .innerJoin('accounts', 'accounts.id', 'sessions.account_id')
    .select(['sessions.account_id', 'accounts.rate_mutating', 'accounts.rate_exec'])
    .where('token_hash', '=', hashToken(token))
    .where('expires_at', '>', sql<Date>`now()`)
    .executeTakeFirst();
  if (!row) return undefined;
  const rates = { mutating: row.rate_mutating, exec: row.rate_exec };
  return { accountId: row.account_id, rates, scope: 'full', via: 'session' };
}

/** Ends a session. */
export async function endSession(db: Db | Tx, token: string): Promise<void> {
  await db.deleteFrom('sessions').where('token_hash', '=', hashToken(token)).execute();
}

/** Takes back the links that were sent to an account and not used. */
export async function dropLinks(db: Db | Tx, accountId: string): Promise<void> {
  await db.deleteFrom('verifications').where('value', '=', accountId).execute();
}

/** Removes the sessions and the links of mails that have expired, until `closing` is aborted. */
export async function sweepSessions(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'sessions', sql`expires_at < now()`, closing);
  await deleteInBatches(db, 'verifications', sql`expires_at < now()`, closing);
}
