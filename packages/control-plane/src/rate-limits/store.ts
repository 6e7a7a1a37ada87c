// A token bucket that all replicas share: one row of PostgreSQL, and one statement when the request is allowed.
//
// The row holds a single time, `full_at`: when the bucket will be full if nobody takes from it (the generic cell rate
// algorithm). A token taken moves that time on by what one token needs to come back; it may not lie further ahead than
// a whole bucket needs. The database's clock is the only one, so replicas need not agree on the time.
import { sql } from 'kysely';
import type { Rate } from '../config.ts';
import type { Db } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';

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
const AHEAD = '(extract(epoch from full_at - clock_timestamp()) * 1000000)::bigint as ahead';

const takeOne = prepare<{ ahead: number }>(
  'take_token',
  `insert into rate_buckets as b (key, full_at)
   values ($1, clock_timestamp() + $2::bigint * interval '1 microsecond')
   on conflict (key) do update
     set full_at = greatest(b.full_at, clock_timestamp()) + $2::bigint * interval '1 microsecond'
     where greatest(b.full_at, clock_timestamp()) + $2::bigint * interval '1 microsecond'
       <= clock_timestamp() + $3::bigint * interval '1 microsecond'
   returning ${AHEAD}`,
);

const selectAhead = prepare<{ ahead: number }>('read_bucket', `select ${AHEAD} from rate_buckets where key = $1`);

/** Takes a token of the bucket `key`, when there is one. */
export async function takeToken(db: Db, key: string, rate: Rate): Promise<Verdict> {
  // Whole microseconds, as PostgreSQL counts: a whole bucket is then exactly `burst` tokens.
  const token = Math.max(1, Math.round(SECOND / rate.perSec));
  const bucket = token * rate.burst;
  const [row] = await takeOne(db, [key, token, bucket]);
  const ahead = row ? row.ahead : await readAhead(db, key);
  return {
    isAllowed: row !== undefined,
    limit: rate.burst,
    remaining: Math.max(0, Math.floor((bucket - ahead) / token)),
    resetSec: Math.max(0, Math.ceil(ahead / SECOND)),
    retryAfterSec: Math.max(1, Math.ceil((ahead + token - bucket) / SECOND)),
  };
}

/** Deletes the buckets that are full again: a row that is not there is a full bucket. */
export async function sweepBuckets(db: Db): Promise<void> {
  await db.deleteFrom('rate_buckets').where('full_at', '<', sql<Date>`now()`).execute();
}

async function readAhead(db: Db, key: string): Promise<number> {
  const [row] = await selectAhead(db, [key]);
  return row?.ahead ?? 0;
}
