// The clock of an account. Entries of the feed, meters, charges and credits of one account take their times from it, so
// that they have one order and never contradict each other. It follows the database's clock. When the database's clock
// steps back, the account's clock does not: it moves on by one millisecond at each event, until the database's clock
// has caught up. So no interval is ever negative, and no time is charged twice.
import { sql } from 'kysely';

/**
 * SQL: the next instant of the account whose row the statement updates: now, in milliseconds, and later than all
 * instants before. Store it in `accounts.activity_at`, whose row lock keeps the instants in order.
 */
export const NEXT_INSTANT = sql<Date>`greatest(date_trunc('milliseconds', clock_timestamp()),
  accounts.activity_at + interval '1 millisecond')`;
