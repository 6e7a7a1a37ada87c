// SQL of API keys.
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { Db, Tx } from '../db/database.ts';
import type { KeyScope } from '../db/tables.ts';
import { generateKey, hashKey, PREFIX_LENGTH } from './key.ts';

export type Caller = { accountId: string; keyId: string; scope: KeyScope; isUseStale: boolean };

/** Makes a key and returns it; this is the only time it is seen. */
export async function insertKey(db: Db | Tx, accountId: string, scope: KeyScope, name: string): Promise<string> {
  const key = generateKey();
  await db
    .insertInto('api_keys')
    .values({
      id: uuidv7(),
      account_id: accountId,
      name,
      scope,
      prefix: key.slice(0, PREFIX_LENGTH),
      key_hash: hashKey(key),
      expires_at: null,
    })
    .execute();
  return key;
}

/** Whose key this is: one query on the unique index of the hash. Undefined when unknown or expired. */
export async function findCaller(db: Db, key: string): Promise<Caller | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select([
      'id',
      'account_id',
      'scope',
      sql<boolean>`coalesce(last_used_at < now() - interval '1 minute', true)`.as('stale'),
    ])
    .where('key_hash', '=', hashKey(key))
    .where(sql<boolean>`(expires_at is null or expires_at > now())`)
    .executeTakeFirst();
  return row && { accountId: row.account_id, keyId: row.id, scope: row.scope, isUseStale: row.stale };
}

/** Writes the time of the last use, at most once a minute whoever asks. */
export async function touchKey(db: Db, keyId: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ last_used_at: sql<Date>`now()` })
    .where('id', '=', keyId)
    .where(sql<boolean>`coalesce(last_used_at < now() - interval '1 minute', true)`)
    .execute();
}
