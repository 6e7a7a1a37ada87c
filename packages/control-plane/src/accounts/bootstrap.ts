// The first account, made once for the owner of the data directory. Two replicas may be asked at the same time.
import { sql } from 'kysely';
import { insertKey } from '../api-keys/store.ts';
import type { Db } from '../db/database.ts';
import { findFirstAccount, insertAccount } from './store.ts';

export type FirstAccount = { account_id: string; email: string; api_key: string | null };

/** Makes the first account with a full key, or says which it is (`api_key` null: a key is only shown when it is made). */
export function bootstrapAccount(db: Db, email: string): Promise<FirstAccount> {
  return db.transaction().execute(async (tx) => {
    await sql`lock table accounts in share row exclusive mode`.execute(tx);
    const existing = await findFirstAccount(tx);
    if (existing) return { account_id: existing.id, email: existing.email, api_key: null };
    const accountId = await insertAccount(tx, { email, tier: 'enterprise', isOwner: true });
    return { account_id: accountId, email, api_key: await insertKey(tx, accountId, 'full', 'first key') };
  });
}
