// The form of a join token: `sbh_`, 256 random bits, and the beginning of the fingerprint of the authority. Only its
// SHA-256 is stored.
import { createHash, X509Certificate } from 'node:crypto';
import { randomText } from '../api-keys/key.ts';

const FINGERPRINT_LENGTH = 32;

/** Makes a token, with which a host also recognises the authority `certificate` (PEM). */
export function generateToken(certificate: string): string {
  const fingerprint = createHash('sha256').update(new X509Certificate(certificate).raw).digest('hex');
  return `sbh_${randomText()}.${fingerprint.slice(0, FINGERPRINT_LENGTH)}`;
}

/**
 * The hash that the database stores in place of a token. A fast hash is enough, because a token has 256 random bits.
 */
export const hashToken = (token: string): Buffer => createHash('sha256').update(token).digest();
