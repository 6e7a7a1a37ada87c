// What time alone makes superfluous: months of the feed and destroyed machines past the retention, old idempotency keys,
// full rate buckets, sessions that ended. Every hour, and at the start; several replicas may do it at once.
import { sql } from 'kysely';
import { keepMonths, oldestKept } from '../activity/partitions.ts';
import type { App } from '../app.ts';
import { sweepSessions } from '../auth/store.ts';
import { asOwner } from '../db/database.ts';
import { sweepBuckets } from '../rate-limits/store.ts';

export const HOUSEKEEPING_MS = 3_600_000;

/** One round. */
export async function keepHouse(app: App): Promise<void> {
  const { databaseUrl, activityRetentionDays } = app.config;
  const { made, dropped } = await asOwner(databaseUrl, app.log, (owner) => keepMonths(owner, activityRetentionDays));
  if (made.length + dropped.length > 0) app.log.info({ made, dropped }, 'months of the activity feed');
  await app.db
    .deleteFrom('machines')
    .where('state', '=', 'destroyed')
    .where('destroyed_at', '<', oldestKept(new Date(), activityRetentionDays))
    .execute();
  // Kept at least 24 hours.
  await app.db
    .deleteFrom('idempotency_keys')
    .where('created_at', '<', sql<Date>`now() - interval '24 hours'`)
    .execute();
  await sweepBuckets(app.db);
  await sweepSessions(app.db);
}
