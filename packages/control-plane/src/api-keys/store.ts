// SQL of API keys.
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { ValidCredential } from '../auth/credential-watch.ts';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { KeyScope } from '../db/tables.ts';
import type { Caller } from '../http/route-config.ts';
import { generateKey, hashKey, PREFIX_LENGTH } from './key.ts';

/** The caller that a key belongs to. `isUseStale`: the stored time of the key's last use is over a minute old. */
export type KeyCaller = Caller & { isUseStale: boolean };

/** Makes a key and returns it. It cannot be read again later, since only its hash is stored. */
export async function insertKey(
  db: Db | Tx,
  accountId: string,
  scope: KeyScope,
  name: string,
  expiresAt: Date | null = null,
): Promise<string> {
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
      expires_at: expiresAt,
    })
    .execute();
  return key;
}

const selectCaller = statement((db, hash: Buffer) =>
  db
    .selectFrom('api_keys as k')
    .innerJoin('accounts as a', 'a.id', 'k.account_id')
    .select(['k.id', 'k.account_id', 'k.scope', 'a.rate_mutating', 'a.rate_exec'])
    .select(sql<boolean>`a.suspended_at is not null`.as('is_suspended'))
    .select(sql<boolean>`coalesce(k.last_used_at < now() - interval '1 minute', true)`.as('stale'))
    .where('k.key_hash', '=', hash)
    .where('a.deleted_at', 'is', null)
    .where(sql<boolean>`(k.expires_at is null or k.expires_at > now())`),
);

/**
 * Returns the key's account, by one query on the unique index of key hashes. Undefined for an unknown or expired key,
 * and for a key of a deleted account.
 */
export async function findCaller(db: Db, key: string): Promise<KeyCaller | undefined> {
  const [row] = await selectCaller(db, hashKey(key));
  if (!row) return undefined;
  return {
    accountId: row.account_id,
    rates: { mutating: row.rate_mutating, exec: row.rate_exec },
    scope: row.scope,
    via: 'key',
    credentialId: row.id,
    isSuspended: row.is_suspended,
    isUseStale: row.stale,
  };
}

/** The keys among `ids` that exist, have not expired, and are not of a deleted account. */
export function findValidKeys(db: Db, ids: readonly string[]): Promise<ValidCredential[]> {
  return db
    .selectFrom('api_keys as k')
    .innerJoin('accounts as a', 'a.id', 'k.account_id')
    .select(['k.id', sql<boolean>`a.suspended_at is not null`.as('isSuspended')])
    .where(sql<boolean>`k.id = any(${ids}::uuid[])`)
    .where(sql<boolean>`(k.expires_at is null or k.expires_at > now())`)
    .where('a.deleted_at', 'is', null)
    .execute();
}

/** Writes the time of the last use, at most once a minute for all replicas together. */
export async function touchKey(db: Db, keyId: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ last_used_at: sql<Date>`now()` })
    .where('id', '=', keyId)
    .where(sql<boolean>`coalesce(last_used_at < now() - interval '1 minute', true)`)
    .execute();
}
