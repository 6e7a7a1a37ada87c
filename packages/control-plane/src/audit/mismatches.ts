// Compares what is in use with the open meters, in SQL: every machine, volume and snapshot in use has one open meter
// with its size and the price in force, and nothing else has an open meter.
import type { ResourceKind } from '@sandbar/contract/billing.ts';
import { sql } from 'kysely';
import { PRICE_IN_FORCE } from '../billing/prices.ts';
import type { Db, Tx } from '../db/database.ts';

/** The largest number of findings of one kind about billing. */
export const SHOWN = 20;

/**
 * SQL: what is in use, and the size that its meter must have. This repeats the rule of transitions/metered.ts on
 * purpose, so that a mistake in one of the two is found.
 */
const USED = sql`
  select account_id, 'machine' as kind, id, case state when 'running' then vcpus else 0 end as vcpus,
    case state when 'running' then memory_mb else 0 end as memory_mb, rootfs_size_gb as storage_gb, 0 as snapshot_mb
  from machines where state in ('running', 'stopped') or (state = 'provisioning' and started_at is not null)
  union all
  select account_id, 'volume', id, 0, 0, size_gb, 0
  from volumes where state in ('available', 'attached', 'taken') or (state = 'deleting' and error is null)
  union all
  select account_id, 'snapshot', id, 0, 0, 0, div(stored_bytes + 1048575, 1048576)::int
  from snapshots where state = 'ready' or (state = 'deleting' and error is null)`;

/** SQL: the columns of a meter, or of something in use, that must be equal. `x`: the alias of its table. */
const measured = (x: 'used' | 'open') => sql`
  ${sql.ref(`${x}.account_id`)}, ${sql.ref(`${x}.kind`)}, ${sql.ref(`${x}.vcpus`)}, ${sql.ref(`${x}.memory_mb`)},
  ${sql.ref(`${x}.storage_gb`)}, ${sql.ref(`${x}.snapshot_mb`)}`;

/** A resource whose open meter is wrong or missing, or an open meter without a resource. */
export type Mismatch = {
  id: string;
  kind: ResourceKind;
  /** Null when the resource is not in use. */
  used_account: string | null;
  used_size: string | null;
  /** Null when there is no open meter. */
  meter_id: number | null;
  meter_account: string | null;
  meter_size: string | null;
  meter_price: number | null;
  price_in_force: number;
};

/**
 * Returns the resources that are in use without an open meter, whose open meter has a wrong size or price, or that have
 * an open meter without being in use. `id`: checks only this resource; null: checks all.
 */
export async function findMismatches(db: Db | Tx, id: string | null = null): Promise<Mismatch[]> {
  const size = (x: 'used' | 'open') => sql`concat_ws(', ', ${sql.ref(`${x}.vcpus`)} || ' vCPUs',
    ${sql.ref(`${x}.memory_mb`)} || ' MiB', ${sql.ref(`${x}.storage_gb`)} || ' GiB of disk',
    ${sql.ref(`${x}.snapshot_mb`)} || ' MiB of snapshot')`;
  const { rows } = await sql<Mismatch>`
    with used as (select * from (${USED}) as used where ${id}::uuid is null or id = ${id}),
      open as (
        select id as meter_id, resource_id, account_id, resource_kind as kind, vcpus, memory_mb, storage_gb,
          snapshot_mb, price_id
        from meters where ended_at = 'infinity' and (${id}::uuid is null or resource_id = ${id}))
    select coalesce(used.id, open.resource_id) as id, coalesce(used.kind, open.kind) as kind,
      used.account_id as used_account, case when used.id is not null then ${size('used')} end as used_size,
      open.meter_id, open.account_id as meter_account, case when meter_id is not null then ${size('open')} end
      as meter_size, open.price_id as meter_price, ${PRICE_IN_FORCE} as price_in_force
    from used full join open on open.resource_id = used.id
      join accounts on accounts.id = coalesce(used.account_id, open.account_id)
    where (${measured('used')}, ${PRICE_IN_FORCE}) is distinct from (${measured('open')}, open.price_id)
    order by id limit ${SHOWN}`.execute(db);
  return rows;
}
