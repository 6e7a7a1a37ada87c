// Listing, making and revoking the API keys of an account.
import {
  API_KEYS_MAX,
  type ApiKey,
  type ApiKeyCreate,
  type ApiKeyListQuery,
  type KeyScope,
  type NewApiKey,
} from '@sandbar/contract/api-key.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Selectable } from 'kysely';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { ApiKeyTable } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { fetchPage, readPage } from '../paging.ts';
import { hashKey } from './key.ts';
import { insertKey } from './store.ts';

const COLUMNS = ['id', 'name', 'scope', 'prefix', 'created_at', 'last_used_at', 'expires_at'] as const;
type Row = Pick<Selectable<ApiKeyTable>, (typeof COLUMNS)[number]>;

/** Lists the keys of an account, newest first. Throws `validation_error` for a bad cursor. */
export async function listKeys(
  app: App,
  accountId: string,
  query: ApiKeyListQuery,
): Promise<{ rows: ApiKey[]; cursor: { next_cursor?: string } }> {
  const list = ['api-keys', accountId];
  const page = readPage(app.config.secret, query, list);
  const select = app.db.selectFrom('api_keys').select(COLUMNS).where('account_id', '=', accountId);
  const { rows, cursor } = await fetchPage(app.config.secret, select, page, list);
  return { rows: rows.map(toApiKey), cursor };
}

/**
 * Makes a key. Throws `validation_error` for an expiry that has passed, and `conflict` when the account has 100 keys.
 */
export async function createKey(
  app: App,
  accountId: string,
  { name, scope, expires_at }: ApiKeyCreate,
): Promise<NewApiKey> {
  const expiresAt = expires_at === undefined ? null : new Date(expires_at);
  if (expiresAt && !(expiresAt.getTime() > Date.now())) {
    throw new ServiceError('validation_error', 'expires_at must be a time in the future, RFC 3339.');
  }
  return inTransaction(app.db, (tx) => addKey(tx, accountId, { name, scope, expiresAt }));
}

/** Makes a key in a transaction. Throws `conflict` when the account has 100 keys. */
export async function addKey(
  tx: Tx,
  accountId: string,
  { name, scope, expiresAt }: { name: string; scope: KeyScope; expiresAt: Date | null },
): Promise<NewApiKey> {
  // Parallel requests must not both make the hundredth key, so they wait for each other here.
  await lockAccount(tx, accountId);
  await checkKeyCount(tx, accountId);
  const key = await insertKey(tx, accountId, scope, name, expiresAt);
  const row = await tx
    .selectFrom('api_keys')
    .select(COLUMNS)
    .where('key_hash', '=', hashKey(key))
    .executeTakeFirstOrThrow();
  return { ...toApiKey(row), key };
}

/** Throws `conflict` when the account has 100 keys. */
export async function checkKeyCount(tx: Tx, accountId: string): Promise<void> {
  const { count } = await tx
    .selectFrom('api_keys')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('account_id', '=', accountId)
    .executeTakeFirstOrThrow();
  if (count >= API_KEYS_MAX) {
    throw new ServiceError('conflict', `The account has ${API_KEYS_MAX} API keys, which is the most. Revoke one.`);
  }
}

/** Deletes a key. Throws `not_found` for a key that does not exist or belongs to another account. */
export async function revokeKey(app: App, accountId: string, id: string): Promise<void> {
  const { numDeletedRows } = await app.db
    .deleteFrom('api_keys')
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  if (numDeletedRows === 0n) throw new ServiceError('not_found', 'There is no such API key.');
}

function toApiKey(row: Row): ApiKey {
  return {
    id: row.id,
    name: row.name,
    scope: row.scope,
    prefix: row.prefix,
    created_at: row.created_at.toISOString(),
    last_used_at: row.last_used_at?.toISOString() ?? null,
    expires_at: row.expires_at?.toISOString() ?? null,
  };
}
