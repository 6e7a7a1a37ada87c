// Audits whether the feed and the meters agree. Both take their times from the account's clock, in the transaction of
// the change. So each entry that begins or ends a resource's use has a meter that begins or ends at exactly its time.
//
// There is no repair, because an entry is never changed, and of a meter only the end is ever set.
import type { ActivityAction } from '@sandbar/contract/activity.ts';
import { type RawBuilder, sql } from 'kysely';
import type { App } from '../app.ts';
import type { Finding } from './finding.ts';
import { SHOWN } from './mismatches.ts';

const RUNS: readonly ActivityAction[] = ['machine.created', 'machine.started'];
const MACHINE_CHANGES: readonly ActivityAction[] = [...RUNS, 'machine.stopped', 'machine.destroyed'];
const NEW_DISKS: readonly ActivityAction[] = ['volume.created', 'snapshot.created'];
const REMOVALS: readonly ActivityAction[] = ['machine.destroyed', 'volume.deleted', 'snapshot.deleted'];

/** SQL: the time since which there are meters. The first price list was made together with their table. */
const METERED_SINCE = sql`(select min(created_at) from prices)`;

const anyOf = (actions: readonly ActivityAction[]): RawBuilder<boolean> =>
  sql<boolean>`action in (${sql.join(actions)})`;

/** Returns the findings about entries without their meters, and about meters without their entries. */
export async function findInFeed(app: App): Promise<Finding[]> {
  return [...(await findEntries(app)), ...(await findMeters(app))];
}

/**
 * Finds entries that the meters contradict. A removal need not end a meter, because a resource in error has no open
 * meter. But no meter of the resource may end after its removal.
 */
async function findEntries({ db }: App): Promise<Finding[]> {
  const { rows } = await sql<{ id: string; action: ActivityAction; resource_id: string; created_at: Date }>`
    with entries as (
      select id, account_id, created_at, action, (case split_part(action, '.', 1)
        when 'machine' then machine_id
        when 'volume' then metadata ->> 'volume_id'
        else metadata ->> 'snapshot_id' end)::uuid as resource_id
      from activity
      where ${anyOf([...MACHINE_CHANGES, ...NEW_DISKS, ...REMOVALS])} and created_at > ${METERED_SINCE}
    )
    select entries.id, action, entries.resource_id, created_at
    from entries
      left join meters as begun
        on begun.resource_id = entries.resource_id and begun.started_at = created_at
          and begun.account_id = entries.account_id
      left join meters as ended
        on ended.resource_id = entries.resource_id and ended.ended_at = created_at
          and ended.account_id = entries.account_id
      left join (select resource_id, max(ended_at) as last_end from meters group by resource_id) as lasts
        on lasts.resource_id = entries.resource_id
    where case
      when ${anyOf(RUNS)} then begun.vcpus > 0 is not true
      when ${anyOf(NEW_DISKS)} then begun.id is null
      when action = 'machine.stopped' then ended.vcpus > 0 is not true or begun.vcpus = 0 is not true
      else last_end > created_at end
    order by created_at, entries.id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, action, resource_id, created_at }) => {
    const difference = REMOVALS.includes(action) ? 'a meter ends after that time' : 'no meter changes at that time';
    const detail = `The feed has ${action} at ${created_at.toISOString()}, but ${difference}.`;
    return { area: 'meter', hostId: null, subject: resource_id, key: `feed/${id}`, detail };
  });
}

/**
 * Finds meters of running machines whose beginning the feed does not explain. A meter may begin at the time of an
 * entry, or when another meter of the machine ends because the price changed. It may also begin while the machine runs
 * already, because the audit has opened a missing meter.
 */
async function findMeters({ db, config }: App): Promise<Finding[]> {
  // One day less than the retention, so that no entry of this time has been removed yet.
  const since = sql`greatest(${METERED_SINCE}, now() - ${config.activityRetentionDays - 1}::int * interval '1 day')`;
  const { rows } = await sql<{ id: number; resource_id: string; started_at: Date }>`
    with unexplained as materialized (
      select meters.id, meters.account_id, meters.resource_id, meters.started_at
      from meters
      where resource_kind = 'machine' and vcpus > 0 and started_at > ${since}
        and not exists (
          select from activity
          where activity.account_id = meters.account_id and activity.machine_id = meters.resource_id::text
            and activity.created_at = meters.started_at and ${anyOf(RUNS)})
        and not exists (
          select from meters as other
          where other.resource_id = meters.resource_id and other.id <> meters.id
            and other.ended_at = meters.started_at)
    )
    select id, resource_id, started_at from unexplained
    where coalesce((
      select not ${anyOf(RUNS)} from activity
      where activity.account_id = unexplained.account_id and activity.machine_id = unexplained.resource_id::text
        and created_at < started_at and ${anyOf(MACHINE_CHANGES)}
      order by created_at desc limit 1), true)
    order by id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, resource_id, started_at }) => ({
    area: 'meter',
    hostId: null,
    subject: resource_id,
    key: `meter-begin/${id}`,
    detail: `Meter ${id} of the machine begins at ${started_at.toISOString()}, but the feed has no start then.`,
  }));
}
