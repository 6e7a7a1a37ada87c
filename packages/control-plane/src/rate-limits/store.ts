// A token bucket that all replicas share. Each bucket is one row in PostgreSQL, and an allowed request costs one
// statement.
//
// The row stores a single time, `full_at`: when the bucket will be full again if nobody takes a token (the generic cell
// rate algorithm). Taking a token moves `full_at` later by the time in which one token refills. A request is refused if
// `full_at` would then be later than that of an empty bucket. Only the database's clock is used, so the clocks of the
// replicas need not agree.
import { sql } from 'kysely';
import type { Rate } from '../config.ts';
import { deleteInBatches } from '../db/batches.ts';
import type { Db } from '../db/database.ts';
import { statement } from '../db/statement.ts';

export type Verdict = {
  isAllowed: boolean;
  /** Number of tokens in a full bucket: the burst. */
  limit: number;
  /** Number of whole tokens that are left. */
  remaining: number;
  /** Whole seconds until the bucket is full, rounded up. */
  resetSec: number;
  /** Whole seconds until the next token is available, rounded up, at least 1. */
  retryAfterSec: number;
};

const SECOND = 1_000_000;

/** Microseconds until the bucket is full. */
const ahead = sql<number>`(extract(epoch from rate_buckets.full_at - clock_timestamp()) * 1000000)::bigint`;

const now = sql<Date>`clock_timestamp()`;

/**
 * Takes one token. Returns no row when the bucket is empty. No request sets `full_at` more than a bucket ahead. If it
 * is two buckets ahead, the database's clock was set back, and the bucket counts as full; otherwise the account would
 * be refused until the clock has caught up.
 */
const takeOne = statement((db, key: string, token: number, bucket: number) => {
  const isFuture = sql`rate_buckets.full_at > ${now} + 2 * ${bucket}::bigint * interval '1 microsecond'`;
  const oneLater = sql<Date>`case when ${isFuture} then ${now} else greatest(rate_buckets.full_at, ${now}) end
    + ${token}::bigint * interval '1 microsecond'`;
  return db
    .insertInto('rate_buckets')
    .values({ key, full_at: sql<Date>`${now} + ${token}::bigint * interval '1 microsecond'` })
    .onConflict((conflict) =>
      conflict
        .column('key')
        .doUpdateSet({ full_at: oneLater })
        .where(sql<boolean>`${oneLater} <= ${now} + ${bucket}::bigint * interval '1 microsecond'`),
    )
    .returning(ahead.as('ahead'));
});

/** Takes a token from the bucket `key` if there is one, and returns how full the bucket is. */
export async function takeToken(db: Db, key: string, rate: Rate): Promise<Verdict> {
  // PostgreSQL counts time in whole microseconds. So round the time for one token to whole microseconds; then a full
  // bucket has exactly `burst` tokens.
  const token = Math.max(1, Math.round(SECOND / rate.perSec));
  const bucket = token * rate.burst;
  const [row] = await takeOne(db, key, token, bucket);
  const aheadUs = row ? row.ahead : await readAhead(db, key);
  return {
    isAllowed: row !== undefined,
    limit: rate.burst,
    remaining: Math.max(0, Math.floor((bucket - aheadUs) / token)),
    resetSec: Math.max(0, Math.ceil(aheadUs / SECOND)),
    retryAfterSec: Math.max(1, Math.ceil((aheadUs + token - bucket) / SECOND)),
  };
}

/** Deletes the buckets that are full again, until `closing` is aborted. A bucket without a row counts as full. */
export async function sweepBuckets(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'rate_buckets', sql`full_at < now()`, closing);
}

async function readAhead(db: Db, key: string): Promise<number> {
  const row = await db.selectFrom('rate_buckets').select(ahead.as('ahead')).where('key', '=', key).executeTakeFirst();
  return row?.ahead ?? 0;
}
