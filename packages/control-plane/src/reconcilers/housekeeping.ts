// Deletes data that has passed its retention: months of the activity feed, machines that were destroyed long ago,
// idempotency keys, finished operations, full rate buckets, ended sessions, expired terminal tickets, old device
// logins, old join tokens and old authorities of the fleet. Runs at the start of the process and then every hour.
// Several replicas may run it at the same time.
import { sql } from 'kysely';
import { keepMonths, oldestKept } from '../activity/partitions.ts';
import type { App } from '../app.ts';
import { sweepSessions } from '../auth/store.ts';
import { deleteInBatches } from '../db/batches.ts';
import { asOwner } from '../db/database.ts';
import { sweepDeviceLogins } from '../device-login/store.ts';
import { retireAuthorities } from '../fleet/authorities.ts';
import { sweepHostTokens } from '../fleet/store.ts';
import { sweepBuckets } from '../rate-limits/store.ts';
import { sweepTickets } from '../terminals/store.ts';

export const HOUSEKEEPING_MS = 3_600_000;
/** How soon housekeeping runs again after a sweep failed, in milliseconds. */
export const HOUSEKEEPING_RETRY_MS = 60_000;

const SWEEPS: readonly [name: string, sweep: (app: App) => Promise<void>][] = [
  ['months of the activity feed', sweepMonths],
  ['destroyed machines', sweepMachines],
  ['idempotency keys', sweepIdempotencyKeys],
  ['finished operations', sweepOperations],
  ['rate buckets', ({ db, closing }) => sweepBuckets(db, closing)],
  ['sessions', ({ db, closing }) => sweepSessions(db, closing)],
  ['terminal tickets', ({ db, closing }) => sweepTickets(db, closing)],
  ['device logins', ({ db, closing }) => sweepDeviceLogins(db, closing)],
  ['join tokens of hosts', ({ db, closing }) => sweepHostTokens(db, closing)],
  ['authorities of the fleet', retireAuthorities],
];

/**
 * Runs all sweeps once. A sweep that fails is logged, and the other sweeps still run. Returns false if any sweep
 * failed.
 */
export async function keepHouse(app: App): Promise<boolean> {
  let isComplete = true;
  for (const [name, sweep] of SWEEPS) {
    if (app.closing.aborted) break;
    try {
      await sweep(app);
    } catch (err) {
      isComplete = false;
      app.log.warn({ err, sweep: name }, 'old rows could not be removed yet');
    }
  }
  return isComplete;
}

async function sweepMonths({ config, log }: App): Promise<void> {
  const { made, dropped } = await asOwner(config.databaseUrl, log, (owner) =>
    keepMonths(owner, config.activityRetentionDays),
  );
  if (made.length + dropped.length > 0) log.info({ made, dropped }, 'months of the activity feed');
}

async function sweepMachines({ db, config, closing }: App): Promise<void> {
  const oldest = oldestKept(new Date(), config.activityRetentionDays);
  const isOld = sql`state = 'destroyed' and destroyed_at < ${oldest}`;
  // Deleting a machine also deletes its jobs, in one statement of unlimited size. Delete the jobs first, in batches.
  await deleteInBatches(db, 'execs', sql`machine_id in (select id from machines where ${isOld})`, closing);
  await deleteInBatches(db, 'machines', isOld, closing);
}

/** The API promises that idempotency keys work for 24 hours. */
async function sweepIdempotencyKeys({ db, closing }: App): Promise<void> {
  await deleteInBatches(db, 'idempotency_keys', sql`created_at < now() - interval '24 hours'`, closing);
}

/** One hour is ample: requests that wait for an operation read its result within a minute of its end. */
async function sweepOperations({ db, closing }: App): Promise<void> {
  await deleteInBatches(db, 'operations', sql`finished_at < now() - interval '1 hour'`, closing);
}
