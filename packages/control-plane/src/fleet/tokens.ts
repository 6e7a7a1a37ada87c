// The operator's side of join tokens.
import type { HostToken, NewHostToken } from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { HOST_TOKEN_SEC } from '@sandbar/contract/fleet.ts';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { lockAuthorities } from './authorities.ts';
import { deleteToken, insertToken, listTokens } from './store.ts';
import { generateToken, hashToken } from './token.ts';

/** Makes a join token that can be used for `expiresInSec` seconds. Its text is returned once and never again. */
export async function createHostToken(
  { db, config }: App,
  expiresInSec: number = HOST_TOKEN_SEC.default,
): Promise<NewHostToken> {
  const { token, id, expiresAt } = await inTransaction(db, async (tx) => {
    const { oldest } = await lockAuthorities(tx, config.secret);
    const text = generateToken(oldest.certificate);
    return { token: text, ...(await insertToken(tx, hashToken(text), expiresInSec)) };
  });
  return { id, token, url: config.auth.publicUrl, expires_at: expiresAt.toISOString() };
}

/** Returns the tokens that can still be used, newest first, without their text. */
export async function listHostTokens({ db }: App): Promise<HostToken[]> {
  const tokens = await listTokens(db);
  return tokens.map(({ id, created_at, expires_at }) => ({
    id,
    created_at: created_at.toISOString(),
    expires_at: expires_at.toISOString(),
  }));
}

/** Makes a token useless before its time. Throws `not_found` for one that is unknown or used. */
export async function revokeHostToken({ db }: App, id: string): Promise<void> {
  if (await deleteToken(db, id)) return;
  throw new ServiceError('not_found', 'There is no unused join token with this id.');
}
