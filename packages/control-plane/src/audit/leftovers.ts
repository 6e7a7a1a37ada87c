// What operations that ended should have taken along: running jobs of machines that do not run, claims that block or that
// nobody holds, idempotency keys past their time.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Finding } from './finding.ts';
import { loseJobsOf } from './mend.ts';

/** Longer than any pass of the reconciler that would have seen it. */
const STALE = sql`interval '60 seconds'`;
/** Keys are kept for 24 hours and swept every hour. */
const KEY_LIFE = sql`interval '26 hours'`;

/** Looks at all of them. */
export async function findLeftovers(app: App): Promise<Finding[]> {
  return [...(await findJobs(app)), ...(await findClaims(app)), ...(await findKeys(app))];
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

/** An operation's claim is of the next seconds: one of long ago is left over, and one that outlasts them blocks its machine. */
const isStale = sql<boolean>`(claim_token is not null
  and (claim_expires_at is null or claim_expires_at < now() - ${STALE} or claim_expires_at > now() + ${STALE}))`;

async function findClaims(app: App): Promise<Finding[]> {
  const rows = await app.db
    .selectFrom('machines')
    .select(['id', 'host_id', 'claim_token', 'claim_expires_at'])
    .where('state', '<>', 'destroyed')
    .where(isStale)
    .orderBy('id')
    .execute();
  return rows.map(({ id, host_id, claim_token, claim_expires_at }) => ({
    area: 'claim',
    hostId: host_id,
    subject: id,
    key: `claim/${claim_token}`,
    detail: `An operation claims the machine until ${claim_expires_at?.toISOString() ?? 'for ever'}, which none does.`,
    mend: {
      fix: 'free the machine',
      did: 'freed the machine',
      run: () =>
        app.db
          .updateTable('machines')
          .set({ claim_token: null, claim_expires_at: null })
          .where('id', '=', id)
          .where('claim_token', '=', claim_token)
          .where(isStale)
          .execute(),
    },
  }));
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
