// Passwords: makes random passwords, and hashes, checks and sets passwords. scrypt runs in Node's thread pool, so a
// sign-in does not delay other requests.
import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { Db, Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { dropLinks } from './store.ts';

/** The provider name under which better-auth stores a password credential. */
export const PASSWORD_PROVIDER = 'credential';
export const PASSWORD_LENGTH = { min: 8, max: 128 } as const;

/**
 * One of the scrypt settings that OWASP's password storage cheat sheet lists as equally strong. It uses 16 MiB of
 * memory for each sign-in.
 */
const COST = { log2N: 14, r: 8, p: 5 } as const;
const SALT_BYTES = 16;
const HASH_BYTES = 32;
/** 24 characters out of 32 that are easy to tell apart: 120 random bits. */
const GENERATED_LENGTH = 24;
const UNAMBIGUOUS = 'abcdefghijkmnpqrstuvwxyz23456789';
const STORED = /^scrypt:(\d{1,2}):(\d{1,2}):(\d{1,2}):([A-Za-z0-9_-]+):([A-Za-z0-9_-]+)$/;

/** A random password. */
export function generatePassword(): string {
  return Array.from(randomBytes(GENERATED_LENGTH), (byte) => UNAMBIGUOUS[byte % UNAMBIGUOUS.length]).join('');
}

/** Returns the text that is stored for a password: its scrypt hash, with the salt and the cost. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(SALT_BYTES);
  const { log2N, r, p } = COST;
  const hash = await derive(password, salt, HASH_BYTES, { N: 2 ** log2N, r, p });
  return ['scrypt', log2N, r, p, salt.toString('base64url'), hash.toString('base64url')].join(':');
}

/** Whether a password has the stored hash. */
export async function verifyPassword({ hash, password }: { hash: string; password: string }): Promise<boolean> {
  const [, log2N, r, p, salt = '', expected = ''] = STORED.exec(hash) ?? [];
  if (expected === '') return false;
  const wanted = Buffer.from(expected, 'base64url');
  const cost = { N: 2 ** Number(log2N), r: Number(r), p: Number(p) };
  return timingSafeEqual(await derive(password, Buffer.from(salt, 'base64url'), wanted.length, cost), wanted);
}

/**
 * Sets the password of an account, ends all its sessions, and makes the links that were mailed to it invalid. It does
 * not check the length of the password.
 */
export async function setPassword(db: Db | Tx, accountId: string, password: string): Promise<void> {
  const hash = await hashPassword(password);
  const now = sql<Date>`now()`;
  const write = async (tx: Db | Tx) => {
    await tx
      .insertInto('credentials')
      .values({
        id: uuidv7(),
        account_id: accountId,
        provider: PASSWORD_PROVIDER,
        provider_account_id: accountId,
        password_hash: hash,
      })
      .onConflict((conflict) =>
        conflict.columns(['provider', 'provider_account_id']).doUpdateSet({ password_hash: hash, updated_at: now }),
      )
      .execute();
    await tx.deleteFrom('sessions').where('account_id', '=', accountId).execute();
    await dropLinks(tx, accountId);
  };
  if (db.isTransaction) await write(db);
  else await inTransaction(db, write);
}

/** Whether an account can sign in with a password. */
export const hasPassword = async (db: Db | Tx, accountId: string): Promise<boolean> =>
  (await findPasswordHash(db, accountId)) !== undefined;

/** The stored hash of an account's password; undefined when it has none. */
export async function findPasswordHash(db: Db | Tx, accountId: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('credentials')
    .select('password_hash')
    .where('account_id', '=', accountId)
    .where('provider', '=', PASSWORD_PROVIDER)
    .executeTakeFirst();
  return row?.password_hash ?? undefined;
}

/**
 * Derives a key by scrypt. The password is first normalised (Unicode), because keyboards encode the same character in
 * different ways.
 */
function derive(password: string, salt: Buffer, length: number, cost: ScryptOptions): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const options = { ...cost, maxmem: 256 * 1024 * 1024 };
  scrypt(password.normalize('NFKC'), salt, length, options, (error, key) => (error ? reject(error) : resolve(key)));
  return promise;
}
