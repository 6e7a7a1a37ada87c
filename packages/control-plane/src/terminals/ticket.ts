// The form of a terminal ticket: `sbt_` and 32 random bytes in base64url. Only its SHA-256 is stored.
import { createHash, randomBytes } from 'node:crypto';

const SHAPE = /^sbt_[0-9A-Za-z_-]{43}$/;

/** A new random ticket. */
export const generateTicket = (): string => `sbt_${randomBytes(32).toString('base64url')}`;

/** Whether a string has the form of a ticket. A string of another form is refused without a query. */
export const looksLikeTicket = (text: string): boolean => SHAPE.test(text);

/**
 * The hash that the database stores in place of a ticket. A fast hash is enough, because a ticket has 256 random bits.
 */
export const hashTicket = (ticket: string): Buffer => createHash('sha256').update(ticket).digest();
