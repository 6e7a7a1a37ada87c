// Encrypts what the database must not show, such as the private keys of the fleet's authorities. The key comes from the
// secret of the service, so a copy of the database alone is of no use.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';

const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** The encrypted value cannot be read: the secret of the service is not the one it was encrypted with. */
export class WrongSecret extends Error {
  constructor(cause: unknown) {
    super('SANDBAR_SECRET is not the secret with which the key of the fleet was encrypted.', { cause });
    this.name = 'WrongSecret';
  }
}

/** Encrypts `plain`. `id` names the row that keeps the result: it can be read in this row only. */
export function seal(plain: Buffer, secret: string, id: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, sealingKey(secret), nonce, { authTagLength: TAG_BYTES }).setAAD(
    Buffer.from(id),
  );
  const encrypted = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), encrypted]);
}

/** Returns what was sealed for the row `id`. Throws `WrongSecret`. */
export function unseal(sealed: Buffer, secret: string, id: string): Buffer {
  try {
    const tag = sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
    const decipher = createDecipheriv(CIPHER, sealingKey(secret), sealed.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(id)).setAuthTag(tag);
    return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch (error) {
    throw new WrongSecret(error);
  }
}

const sealingKey = (secret: string): Buffer =>
  Buffer.from(hkdfSync('sha256', secret, '', 'sandbar fleet key', KEY_BYTES));
