// The queries behind the metrics of the whole service. Each is one statement over an index or a small table, because
// every replica sends them at every scrape.
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import type { HostRow } from '../db/tables.ts';
import type { HostRoom } from '../hosts/room.ts';

export type HostFacts = HostRoom &
  Pick<HostRow, 'id' | 'name' | 'draining' | 'emptying' | 'pool_ready' | 'pool_target' | 'away_since'> & {
    /** Seconds since a replica last heard from the agent of the host. */
    report_age: number;
  };

/** Returns the hosts of the fleet. */
export function readHosts(db: Db): Promise<HostFacts[]> {
  return db
    .selectFrom('hosts')
    .select(['id', 'name', 'draining', 'emptying', 'away_since', 'pool_ready', 'pool_target', 'cpus', 'memory_mb'])
    .select(['disk_mb', 'disk_free_mb', 'disk_reserve_mb'])
    .select(['reserved_memory_mb', 'reserved_vcpus', 'reserved_disk_gb'])
    .select(sql<number>`extract(epoch from now() - seen_at)::float8`.as('report_age'))
    .where('removed_at', 'is', null)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
}

/** Counts the machines that are not destroyed. */
export async function readMachines(db: Db): Promise<{ state: string; count: number }[]> {
  return db
    .selectFrom('machines')
    .select((expression) => ['state', expression.fn.countAll<number>().as('count')])
    .where(sql<boolean>`state <> 'destroyed'`)
    .groupBy('state')
    .execute();
}

export type OperationFacts = { kind: string; count: number; failing: number; oldest_age: number };

/** After how many attempts `sandbar doctor` reports an operation. */
const MANY_ATTEMPTS = 5;

/**
 * Counts the operations under way by kind. Expiries are not among them: most of them only wait for their time. The
 * conditions are those of the partial index `operations_machine`.
 */
export async function readOperations(db: Db): Promise<OperationFacts[]> {
  const { rows } = await sql<OperationFacts>`
    select kind, count(*) as count, count(*) filter (where attempts > ${MANY_ATTEMPTS}::int) as failing,
      extract(epoch from now() - min(created_at))::float8 as oldest_age
    from operations where finished_at is null and kind <> 'expire' group by kind`.execute(db);
  return rows;
}

/** Returns for how many seconds the operation has been due that nobody works on and that is due longest; or 0. */
export async function readOverdue(db: Db): Promise<number> {
  const { rows } = await sql<{ overdue: number }>`
    select extract(epoch from now() - run_at)::float8 as overdue from operations
    where finished_at is null and run_at <= now() and (claim_token is null or claim_expires_at < now())
    order by run_at limit 1`.execute(db);
  return rows[0]?.overdue ?? 0;
}

/** Returns for how many seconds the account has not been charged that is to be charged next; 0 when there is none. */
export async function readLedgerLag(db: Db): Promise<number> {
  const { rows } = await sql<{ lag: number | null }>`
    select extract(epoch from now() - min(charged_until))::float8 as lag from accounts
    where billing_mode = 'prepaid'
      and id in (select account_id from meters where ended_at = 'infinity' and price_id <> 0)`.execute(db);
  return Math.max(0, rows[0]?.lag ?? 0);
}
