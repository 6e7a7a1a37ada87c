// A change of the service's secret: the keys of the authorities, which are encrypted under it, are encrypted again
// under the new one. Everything else that the secret signs ends with it: sessions, tokens of ports, paging cursors.
import { ConfigError } from '../config-error.ts';
import type { Db } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { seal, unseal, WrongSecret } from './seal.ts';
import { listAuthorities, lockFleet, replaceSealedKey } from './store.ts';

/**
 * Encrypts the keys of the authorities with `secret` if they are encrypted with `oldSecret`. Returns the number of keys
 * that it changed; a second run changes none. Throws `ConfigError` for a key that neither secret decrypts.
 */
export async function resealAuthorities(db: Db, secret: string, oldSecret: string): Promise<number> {
  return inTransaction(db, async (tx) => {
    await lockFleet(tx);
    let count = 0;
    for (const { id, sealed_key } of await listAuthorities(tx)) {
      if (tryUnseal(sealed_key, secret, id) !== undefined) continue;
      const key = tryUnseal(sealed_key, oldSecret, id);
      if (key === undefined) {
        throw new ConfigError(
          'Neither SANDBAR_SECRET nor SANDBAR_OLD_SECRET is the secret of the fleet in the database.',
        );
      }
      await replaceSealedKey(tx, id, seal(key, secret, id));
      count++;
    }
    return count;
  });
}

function tryUnseal(sealed: Buffer, secret: string, id: string): Buffer | undefined {
  try {
    return unseal(sealed, secret, id);
  } catch (error) {
    if (error instanceof WrongSecret) return undefined;
    throw error;
  }
}
