// Tokens that open one port of one machine. A token is signed and not stored, so every replica can check it. It ends at
// its expiry, or with the API key that made it.
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { looksLikeKey } from '../api-keys/key.ts';

const PREFIX = 'sbp_';

export type PortTokenContent = {
  machineId: string;
  port: number;
  accountId: string;
  /** The API key that made the token; undefined when a dashboard session did. */
  keyId: string | undefined;
  /** When the token expires, in milliseconds since 1970. */
  expiresAt: number;
};

/** The key that signs tokens of ports, derived from the secret of the service. */
export function portTokenSecret(secret: string): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', 'sandbar port token', 32));
}

export function writePortToken(content: PortTokenContent, secret: Buffer): string {
  const { machineId, port, accountId, keyId = null, expiresAt } = content;
  const text = Buffer.from(JSON.stringify([machineId, port, accountId, keyId, expiresAt])).toString('base64url');
  return `${PREFIX}${text}.${sign(text, secret)}`;
}

/** Returns the content of a token; undefined when it is malformed, has a wrong signature or has expired. */
export function readPortToken(token: string, secret: Buffer, now: number): PortTokenContent | undefined {
  if (!looksLikePortToken(token)) return undefined;
  const [text = '', signature = ''] = token.slice(PREFIX.length).split('.');
  const [given, expected] = [Buffer.from(signature), Buffer.from(sign(text, secret))];
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
  // The signature shows that this service wrote the content.
  const [machineId, port, accountId, keyId, expiresAt] = JSON.parse(Buffer.from(text, 'base64url').toString()) as [
    string,
    number,
    string,
    string | null,
    number,
  ];
  return expiresAt > now ? { machineId, port, accountId, keyId: keyId ?? undefined, expiresAt } : undefined;
}

const looksLikePortToken = (text: string): boolean => text.startsWith(PREFIX);

/** Whether a text has the form of an API key or of a token of a port. Neither ever reaches a machine. */
export const looksLikeCredential = (text: string): boolean => looksLikeKey(text) || looksLikePortToken(text);

const sign = (text: string, secret: Buffer): string => createHmac('sha256', secret).update(text).digest('base64url');
