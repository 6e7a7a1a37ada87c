// A token bucket that all replicas share: one row of PostgreSQL, and one statement when the request is allowed.
//
// The row holds a single time, `full_at`: when the bucket will be full if nobody takes from it (the generic cell rate
// algorithm). A token taken moves that time on by what one token needs to come back; it may not lie further ahead than
// a whole bucket needs. The database's clock is the only one, so replicas need not agree on the time.
import { sql } from 'kysely';
import type { Rate } from '../config.ts';
import { deleteInBatches } from '../db/batches.ts';
import type { Db } from '../db/database.ts';

export type Verdict = {
  isAllowed: boolean;
  /** The burst: tokens in a full bucket. */
  limit: number;
  /** Whole tokens left. */
  remaining: number;
  /** Whole seconds until the bucket is full, rounded up. */
  resetSec: number;
  /** Whole seconds until one token is there, rounded up, at least 1. */
  retryAfterSec: number;
};

const SECOND = 1_000_000;

/** Microseconds until the bucket is full. */
const ahead = sql<number>`(extract(epoch from rate_buckets.full_at - clock_timestamp()) * 1000000)::bigint`;

/** Takes a token of the bucket `key`, when there is one. */
export async function takeToken(db: Db, key: string, rate: Rate): Promise<Verdict> {
  // Whole microseconds, as PostgreSQL counts: a whole bucket is then exactly `burst` tokens.
  const token = Math.max(1, Math.round(SECOND / rate.perSec));
  const bucket = token * rate.burst;
  const now = sql<Date>`clock_timestamp()`;
  const tokenLater = sql<Date>`greatest(rate_buckets.full_at, ${now}) + ${token}::bigint * interval '1 microsecond'`;
  const row = await db
    .insertInto('rate_buckets')
    .values({ key, full_at: sql<Date>`${now} + ${token}::bigint * interval '1 microsecond'` })
    .onConflict((conflict) =>
      conflict
        .column('key')
        .doUpdateSet({ full_at: tokenLater })
        .where(sql<boolean>`${tokenLater} <= ${now} + ${bucket}::bigint * interval '1 microsecond'`),
    )
    .returning(ahead.as('ahead'))
    .executeTakeFirst();
  const aheadUs = row ? row.ahead : await readAhead(db, key);
  return {
    isAllowed: row !== undefined,
    limit: rate.burst,
    remaining: Math.max(0, Math.floor((bucket - aheadUs) / token)),
    resetSec: Math.max(0, Math.ceil(aheadUs / SECOND)),
    retryAfterSec: Math.max(1, Math.ceil((aheadUs + token - bucket) / SECOND)),
  };
}

/** Deletes the buckets that are full again, until `closing` is aborted: a row that is not there is a full bucket. */
export async function sweepBuckets(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'rate_buckets', sql`full_at < now()`, closing);
}

async function readAhead(db: Db, key: string): Promise<number> {
  const row = await db.selectFrom('rate_buckets').select(ahead.as('ahead')).where('key', '=', key).executeTakeFirst();
  return row?.ahead ?? 0;
}
