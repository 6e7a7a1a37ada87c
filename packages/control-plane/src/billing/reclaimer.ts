// The reclaimer removes everything that an account owns, after the account had no money for the whole grace window and
// was warned (notices.ts), or at once when the operator has deleted the account. Snapshots go first, then machines,
// then volumes. Each removal is an operation of its own, so the feed has an entry for each. Several replicas may run it
// at once.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { Tx } from '../db/database.ts';
import { beginDestroy } from '../machines/actions.ts';
import { createBackground } from '../reconcilers/background.ts';
import { type OwnOperation, performOwn } from '../reconcilers/own.ts';
import { beginDeleteSnapshot } from '../snapshots/destroy.ts';
import { beginDeleteVolume } from '../volumes/destroy.ts';
import { graceOf, isReclaimable } from './grace.ts';

/** For each host: how many accounts this replica works on at once, and how many resources of each account. */
const ACCOUNTS_WIDTH = 8;
const RESOURCES_WIDTH = 8;

export type Reclaimer = {
  /** Finds the accounts whose resources must be removed, and begins to remove them. Does not wait for hosts. */
  pass(): Promise<void>;
  /** Waits until every removal that a pass began has ended. */
  settled(): Promise<void>;
};

/** An account whose resources on one host must be removed. `actor`: who removes them. */
export type Abandoned = { account_id: string; host_id: string; actor: ActivityActor };

export function createReclaimer(app: App): Reclaimer {
  const removals = createBackground(app, 'reclaimer', ACCOUNTS_WIDTH);
  return {
    pass: async () => {
      for (const abandoned of await findAbandoned(app)) {
        const { host_id, account_id } = abandoned;
        removals.start(host_id, `${host_id}/${account_id}`, () => reclaim(app, abandoned));
      }
    },
    settled: removals.settled,
  };
}

/** Returns each account whose resources must be removed, once for each connected host that has some of them. */
export async function findAbandoned(app: App): Promise<Abandoned[]> {
  const { rows } = await sql<Abandoned>`
    select accounts.id as account_id, owned.host_id,
      case when accounts.deleted_at is null then 'system:reclaimer' else 'system:operator' end as actor
    from accounts join (
      select account_id, host_id from machines where state <> 'destroyed'
      union select account_id, host_id from volumes
      union select account_id, host_id from snapshots
    ) as owned on owned.account_id = accounts.id
    where (accounts.deleted_at is not null or ${isReclaimable(graceOf(app.config))})
      and owned.host_id = any(${app.hosts.operableIds()}::uuid[])
    order by accounts.id`.execute(app.db);
  return rows;
}

type Resource = { id: string; account_id: string; host_id: string };
type Step = {
  /** SQL: the ids of what the account has on the host. */
  list: (abandoned: Abandoned) => ReturnType<typeof sql<{ id: string }>>;
  removal: (app: App, resource: Resource, actor: ActivityActor) => Omit<OwnOperation, 'isStillDue'>;
};

const STEPS: readonly Step[] = [
  {
    list: (of) => sql`select id from snapshots where account_id = ${of.account_id} and host_id = ${of.host_id}`,
    removal: (app, snapshot, actor) => ({
      subject: { snapshotId: snapshot.id },
      begin: (tx) => beginDeleteSnapshot(app, tx, snapshot, actor),
    }),
  },
  {
    list: (of) => sql`select id from machines
      where account_id = ${of.account_id} and host_id = ${of.host_id} and state <> 'destroyed'`,
    removal: (app, { id }, actor) => ({
      subject: { machineId: id },
      begin: async (tx, machine) =>
        machine && machine.state !== 'destroyed' ? beginDestroy(app, tx, machine, actor, {}) : 'noop',
    }),
  },
  {
    list: (of) => sql`select id from volumes where account_id = ${of.account_id} and host_id = ${of.host_id}`,
    removal: (app, volume, actor) => ({
      subject: { volumeId: volume.id },
      begin: (tx) => beginDeleteVolume(app, tx, volume, actor),
    }),
  },
];

/**
 * Removes what an account has on a host. It begins with the next kind of resource only when nothing of the kind before
 * is left. If a resource cannot be removed now (an operation is unfinished, or the host refuses), a later pass tries
 * again. Throws when the database does not answer.
 */
export async function reclaim(app: App, abandoned: Abandoned): Promise<void> {
  for (const step of STEPS) {
    const { rows } = await step.list(abandoned).execute(app.db);
    await forEachBounded(rows, RESOURCES_WIDTH, ({ id }) => remove(app, step, { ...abandoned, id }));
    if (rows.length > 0 && (await step.list(abandoned).execute(app.db)).rows.length > 0) return;
  }
}

async function remove(app: App, { removal }: Step, { actor, ...resource }: Abandoned & Resource): Promise<void> {
  const isStillDue = (tx: Tx) => isAbandoned(app, tx, { ...resource, actor });
  const hasBegun = await performOwn(app, { ...removal(app, resource, actor), isStillDue });
  if (hasBegun)
    app.log.info(
      { ...resource, actor },
      'the removal of a resource began, because its account is abandoned or deleted',
    );
}

/** Locks the account's row until the transaction ends, and returns true if its resources must still be removed. */
async function isAbandoned(app: App, tx: Tx, { account_id, actor }: Abandoned): Promise<boolean> {
  const condition =
    actor === 'system:operator' ? sql<boolean>`accounts.deleted_at is not null` : isReclaimable(graceOf(app.config));
  const row = await tx
    .selectFrom('accounts')
    .select('id')
    .where('id', '=', account_id)
    .where(condition)
    .forNoKeyUpdate()
    .executeTakeFirst();
  return row !== undefined;
}
