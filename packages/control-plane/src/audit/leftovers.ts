// What should have ended: operations that fail again and again, running jobs of machines that do not run, idempotency keys
// past their time.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { OperationRow } from '../db/tables.ts';
import { claimNow, isNoExpiry, isUnclaimed } from '../operations/store.ts';
import { performDue } from '../reconcilers/due.ts';
import type { Finding } from './finding.ts';
import { loseJobsOf } from './mend.ts';

/** Longer than any pass of the reconciler that would have seen it. */
const STALE = sql`interval '60 seconds'`;
/** Keys are kept for 24 hours and swept every hour. */
const KEY_LIFE = sql`interval '26 hours'`;

/** Looks at all of them. */
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

/** Attempts from which an operation is told of: with growing pauses that is about two minutes. */
const MANY_ATTEMPTS = 5;

/** Operations that fail again and again, with why; and operations that are due and that nobody takes. */
async function findOperations(app: App): Promise<Finding[]> {
  const isForgottenNow = sql<boolean>`(run_at < now() - ${STALE} and ${isUnclaimed})`;
  const rows = await app.db
    .selectFrom('operations')
    .selectAll()
    .select(isForgottenNow.as('isForgotten'))
    .where('finished_at', 'is', null)
    // An expiry that waits for another operation looks at it again and again.
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

/** Past their time, or of a create that was overtaken by a delete and so failed: a retry with it must be a new create. */
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
