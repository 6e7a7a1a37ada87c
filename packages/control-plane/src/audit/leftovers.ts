// Finds rows that should not exist any more: operations that fail again and again, running jobs of machines that do not
// run, and expired idempotency keys.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { OperationRow } from '../db/tables.ts';
import { claimNow, isNoExpiry, isUnclaimed } from '../operations/store.ts';
import { performDue } from '../reconcilers/due.ts';
import type { Finding } from './finding.ts';
import { loseJobsOf } from './mend.ts';

/**
 * If an operation has been due for this long and no process has claimed it, it is a finding. The reconciler looks for
 * due operations every 2 s.
 */
const STALE = sql`interval '60 seconds'`;
/** Idempotency keys are kept for 24 hours and deleted hourly. So a key that is older than 26 hours is a finding. */
const KEY_LIFE = sql`interval '26 hours'`;

/** Returns the findings about jobs, operations and idempotency keys. */
export async function findLeftovers(app: App): Promise<Finding[]> {
  return [...(await findJobs(app)), ...(await findOperations(app)), ...(await findKeys(app))];
}

async function findJobs(app: App): Promise<Finding[]> {
  const rows = await app.db
    .selectFrom('execs')
    .innerJoin('machines', 'machines.id', 'execs.machine_id')
    .select(['execs.id', 'execs.machine_id', 'machines.state', 'machines.host_id'])
    .where('execs.status', '=', 'running')
    .where('machines.state', '<>', 'running')
    .orderBy('execs.id')
    .execute();
  return rows.map((row) => ({
    area: 'job',
    hostId: row.host_id,
    subject: row.id,
    key: `job/${row.id}`,
    detail: `It is running in machine ${row.machine_id}, which is ${row.state}.`,
    mend: { fix: 'mark it as lost', did: 'marked it as lost', run: () => loseJobsOf(app, row.machine_id) },
  }));
}

/**
 * An operation with more attempts than this is a finding. With the growing pauses between attempts, that is after about
 * two minutes.
 */
const MANY_ATTEMPTS = 5;

/** Finds operations that fail again and again, and operations that are due but that no process claims. */
async function findOperations(app: App): Promise<Finding[]> {
  const isForgottenNow = sql<boolean>`(run_at < now() - ${STALE} and ${isUnclaimed})`;
  const rows = await app.db
    .selectFrom('operations')
    .selectAll()
    .select(isForgottenNow.as('isForgotten'))
    .where('finished_at', 'is', null)
    // An expiry may have many attempts without a failure, because it waits for other operations.
    .where(isNoExpiry)
    .where((is) => is.or([is('attempts', '>', MANY_ATTEMPTS), isForgottenNow]))
    .orderBy('id')
    .execute();
  return rows.map((row) => ({
    area: 'operation',
    hostId: row.host_id,
    subject: row.machine_id ?? row.volume_id ?? row.snapshot_id ?? row.id,
    key: `operation/${row.id}`,
    detail: describe(row),
    mend: {
      fix: 'try it now',
      did: 'did it',
      run: async () => {
        const claimed = await claimNow(app, row.id);
        if (claimed) await performDue(app, claimed);
      },
    },
  }));
}

function describe({ kind, attempts, last_error, isForgotten }: OperationRow & { isForgotten: boolean }): string {
  if (attempts <= MANY_ATTEMPTS && isForgotten)
    return `Its ${kind} is due for more than a minute, and nobody works on it.`;
  return `Its ${kind} failed ${attempts} times. The last error: ${last_error ?? 'none was recorded'}`;
}

/**
 * SQL condition: the idempotency key is too old, or its create was cancelled by a delete of the machine. A cancelled
 * create has failed, so a retry with the same key must not find the old key but create a new machine.
 */
const isForgotten = sql<boolean>`(created_at < now() - ${KEY_LIFE}
  or machine_id in (select id from machines where state = 'destroyed' and started_at is null))`;

async function findKeys(app: App): Promise<Finding[]> {
  const rows = await app.db
    .selectFrom('idempotency_keys')
    .select(['account_id', sql<number>`count(*)`.as('keys')])
    .where(isForgotten)
    .groupBy('account_id')
    .orderBy('account_id')
    .execute();
  return rows.map(({ account_id, keys }) => ({
    area: 'idempotency key',
    hostId: null,
    subject: account_id,
    key: `keys/${account_id}`,
    detail: `${keys} of the account are past their time, or of creates that failed.`,
    mend: {
      fix: 'remove them',
      did: 'removed them',
      run: () =>
        app.db.deleteFrom('idempotency_keys').where('account_id', '=', account_id).where(isForgotten).execute(),
    },
  }));
}
