// Makes the first account, once, for the owner of the data directory. Two replicas may get this request at the same
// time.
import { sql } from 'kysely';
import { insertKey } from '../api-keys/store.ts';
import { generatePassword, hasPassword, setPassword } from '../auth/password.ts';
import type { Db, Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { findOwner, insertAccount } from './store.ts';

export type FirstAccount = { account_id: string; email: string; api_key: string | null; password: string | null };

/**
 * Makes the first account, with a key of scope full and a password. If the account exists already, returns it, with
 * `api_key` and `password` null, because both are shown only once.
 */
export function bootstrapAccount(db: Db, email: string): Promise<FirstAccount> {
  return inTransaction(db, async (tx) => {
    await sql`lock table accounts in share row exclusive mode`.execute(tx);
    const existing = await findOwner(tx);
    if (existing) {
      const password = await ensurePassword(tx, existing.id);
      return { account_id: existing.id, email: existing.email, api_key: null, password };
    }
    const accountId = await insertAccount(tx, { email, tier: 'enterprise', isOwner: true });
    const key = await insertKey(tx, accountId, 'full', 'first key');
    return { account_id: accountId, email, api_key: key, password: await ensurePassword(tx, accountId) };
  });
}

/** Gives the account a password if it has none, because an older version without passwords made it. */
async function ensurePassword(tx: Tx, accountId: string): Promise<string | null> {
  if (await hasPassword(tx, accountId)) return null;
  const password = generatePassword();
  await setPassword(tx, accountId, password);
  return password;
}
