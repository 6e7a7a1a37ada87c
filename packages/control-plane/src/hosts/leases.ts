// The SQL of leases. A replica that holds the lease on a host listens to its events and compares it with the rows. All
// times are those of the database's clock. If that clock is set back, what ends much later than anything given now was
// given before, and counts as ended: the replica may be dead, and nobody else could take the host until then.
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';

export type Renewed = {
  /** The hosts whose lease this replica holds. */
  held: string[];
  /** Those of them that some replica has reached lately. */
  seen: string[];
  /** How many replicas are alive, and how many hosts with an address there are for them to share. */
  replicas: number;
  remoteHosts: number;
};

/** `seenIds`: the hosts that this replica has heard from since the last renewal. */
export type Renewal = { replicaId: string; ttlMs: number; seenMs: number; seenIds: readonly string[] };

const inMs = (ms: number) => sql`${ms}::int * interval '1 millisecond'`;
/** The end of a lease, or of the life of a replica, is more than twice as far away as any that is given now. */
const isTooLate = (column: string, ttlMs: number) => sql`${sql.ref(column)} > now() + 2 * ${inMs(ttlMs)}`;

/**
 * Renews all leases of a replica, records which of its hosts were seen, and records that the replica is alive. A lease
 * that has expired is not renewed, even if nobody else has taken it.
 */
export async function renewLeases(db: Db, { replicaId, ttlMs, seenMs, seenIds }: Renewal): Promise<Renewed> {
  // Rows are locked in the order of their ids, as in every statement that changes several hosts.
  const { rows } = await sql<Renewed>`
    with alive as (
      insert into replicas (id, alive_until) values (${replicaId}, now() + ${inMs(ttlMs)})
      on conflict (id) do update set alive_until = excluded.alive_until
    ), mine as (
      select id from hosts where listener_id = ${replicaId} and listener_until > now() and removed_at is null
      order by id for no key update
    ), held as (
      update hosts set
        listener_until = now() + ${inMs(ttlMs)},
        seen_at = case when hosts.id = any(${[...seenIds]}::uuid[]) then now() else seen_at end
      from mine where hosts.id = mine.id
      returning hosts.id, seen_at > now() - ${inMs(seenMs)} as seen
    )
    select
      (select coalesce(array_agg(id::text), '{}') from held) as held,
      (select coalesce(array_agg(id::text), '{}') from held where seen) as seen,
      (select count(*)::int from replicas
        where alive_until > now() and not ${isTooLate('alive_until', ttlMs)} and id <> ${replicaId}) + 1 as replicas,
      (select count(*)::int from hosts where removed_at is null and address is not null) as "remoteHosts"`.execute(db);
  return rows[0] ?? { held: [], seen: [], replicas: 1, remoteHosts: 0 };
}

/**
 * `localId`: the host of this computer, which only a replica of this computer can hold. `avoidIds`: not these hosts.
 */
export type Wish = { replicaId: string; ttlMs: number; localId: string | undefined; avoidIds: readonly string[] };

/** Takes free leases: that of the host of this computer, and up to `count` others at random. Returns the hosts. */
export async function takeLeases(db: Db, count: number, { replicaId, ttlMs, localId, avoidIds }: Wish) {
  const hasEnded = sql`(listener_until <= now() or ${isTooLate('listener_until', ttlMs)})`;
  const isFree = sql`removed_at is null and (listener_until is null or ${hasEnded})`;
  const { rows } = await sql<{ id: string }>`
    update hosts set listener_id = ${replicaId}, listener_until = now() + ${inMs(ttlMs)}
    where id = ${localId ?? null}::uuid and ${isFree} or id = any(array(
      select id from hosts where address is not null and ${isFree} and id <> all(${[...avoidIds]}::uuid[])
      order by random() limit ${count} for no key update skip locked))
    returning id`.execute(db);
  return rows.map(({ id }) => id);
}

/** Gives leases back. */
export async function releaseLeases(db: Db, replicaId: string, hostIds: readonly string[]): Promise<void> {
  await sql`
    update hosts set listener_id = null, listener_until = null
    where id in (select id from hosts where id = any(${[...hostIds]}::uuid[]) and listener_id = ${replicaId}
      order by id for no key update)`.execute(db);
}

/** Forgets a replica that ends, and replicas that died long ago. */
export async function removeReplica(db: Db, replicaId: string): Promise<void> {
  await sql`delete from replicas where id = ${replicaId} or alive_until < now() - interval '1 hour'`.execute(db);
}
