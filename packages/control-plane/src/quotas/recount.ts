// Recomputes the use of accounts and the reservations on hosts from the rows of machines and volumes. A stored total
// changes in the same transaction as the rows that it counts, so the two agree at any time, even during an operation.
// Any difference that one SQL statement sees is therefore an error.
import { QUOTA_DIMENSIONS, type QuotaDimension } from '@sandbar/contract/tier-limits.ts';
import { sql } from 'kysely';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { Db } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { RUNNERS, UNCOUNTED } from '../transitions/amounts.ts';

type Counts = Record<`used_${QuotaDimension}` | `real_${QuotaDimension}`, number>;
export type Miscount = { accountId: string; email: string; differences: string[] };

/**
 * SQL subquery: the actual use of the account with alias `a`, by dimension. Volumes in state `taken` are not counted,
 * because they already count as the root disk of a machine.
 */
const RECOUNT = sql`
  select machines.count as real_machines, machines.vcpus as real_vcpus, machines.memory_mb as real_memory_mb,
    machines.disk_gb + volumes.size_gb as real_storage_gb, volumes.data_count as real_volumes
  from
    (select count(*)::int as count, coalesce(sum(vcpus), 0)::int as vcpus, coalesce(sum(memory_mb), 0)::int as memory_mb,
       coalesce(sum(rootfs_size_gb), 0)::int as disk_gb
     from machines where account_id = a.id and state not in (${sql.join(UNCOUNTED)})) as machines,
    (select coalesce(sum(size_gb), 0)::int as size_gb, (count(*) filter (where kind = 'data'))::int as data_count
     from volumes where account_id = a.id and state <> 'taken') as volumes`;

/** Returns the accounts whose stored use differs from the sum of their rows. */
export async function findMiscounts(db: Db): Promise<Miscount[]> {
  const { rows } = await sql<Counts & { id: string; email: string }>`
    select a.id, a.email, a.used_machines, a.used_vcpus, a.used_memory_mb, a.used_storage_gb, a.used_volumes, recount.*
    from accounts a, lateral (${RECOUNT}) as recount
    where (a.used_machines, a.used_vcpus, a.used_memory_mb, a.used_storage_gb, a.used_volumes)
      <> (real_machines, real_vcpus, real_memory_mb, real_storage_gb, real_volumes)
    order by a.id`.execute(db);
  return rows.map((row) => ({
    accountId: row.id,
    email: row.email,
    differences: QUOTA_DIMENSIONS.filter((name) => row[`used_${name}`] !== row[`real_${name}`]).map(
      (name) => `${name} ${row[`used_${name}`]} instead of ${row[`real_${name}`]}`,
    ),
  }));
}

/**
 * Sets an account's stored use to the sum of its rows. Locks the account's row first: every transaction that changes
 * what the account uses has to lock it too, so it commits either before or after this recount.
 */
export function recountAccount(app: App, accountId: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    await lockAccount(tx, accountId);
    // The recount must be a separate statement after the lock, so that it sees everything that was committed before the
    // lock.
    await sql`
      update accounts as a set (used_machines, used_vcpus, used_memory_mb, used_storage_gb, used_volumes) = (${RECOUNT})
      where id = ${accountId}`.execute(tx);
    app.log.warn({ account_id: accountId }, 'the use of an account was counted anew');
  });
}

type Promises = Record<`${'reserved' | 'real'}_${'memory_mb' | 'vcpus' | 'disk_gb'}`, number>;
export type Misreservation = { hostId: string; differences: string[] };

/**
 * SQL subquery: the room that the host with alias `h` must reserve for its machines and volumes ({@link machineRoom}),
 * and for the copies that moves bring to it or have left on it.
 */
const RESERVED = sql`
  select running.memory_mb as real_memory_mb, running.vcpus as real_vcpus,
    disks.size_gb + volumes.size_gb + copies.size_gb as real_disk_gb
  from
    (select coalesce(sum(memory_mb), 0)::int as memory_mb, coalesce(sum(vcpus), 0)::int as vcpus
     from machines where host_id = h.id and state in (${sql.join(RUNNERS)})) as running,
    (select coalesce(sum(rootfs_size_gb), 0)::int as size_gb
     from machines where host_id = h.id and state <> 'destroyed') as disks,
    (select coalesce(sum(size_gb), 0)::int as size_gb from volumes where host_id = h.id and state <> 'taken') as volumes,
    (select coalesce(sum((copy ->> 'disk_gb')::int), 0)::int as size_gb
     from operations, jsonb_array_elements(args -> 'copies') as copy
     where finished_at is null and ((kind = 'move' and args ->> 'to_host_id' = h.id::text)
       or (kind = 'remove_copy' and host_id = h.id))) as copies`;

/** Returns the hosts whose stored reservations differ from the sums of their machines and volumes. */
export async function findMisreservations(db: Db): Promise<Misreservation[]> {
  const { rows } = await sql<Promises & { id: string }>`
    select h.id, h.reserved_memory_mb, h.reserved_vcpus, h.reserved_disk_gb, recount.*
    from hosts h, lateral (${RESERVED}) as recount
    where (h.reserved_memory_mb, h.reserved_vcpus, h.reserved_disk_gb) <> (real_memory_mb, real_vcpus, real_disk_gb)
    order by h.id`.execute(db);
  return rows.map((row) => ({
    hostId: row.id,
    differences: (['memory_mb', 'vcpus', 'disk_gb'] as const)
      .filter((name) => row[`reserved_${name}`] !== row[`real_${name}`])
      .map((name) => `${name} ${row[`reserved_${name}`]} instead of ${row[`real_${name}`]}`),
  }));
}

/** Locks a host's row and sets its reservations to the sums of its machines and volumes. */
export function recountHost(app: App, hostId: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    await tx.selectFrom('hosts').select('id').where('id', '=', hostId).forNoKeyUpdate().execute();
    await sql`
      update hosts as h set (reserved_memory_mb, reserved_vcpus, reserved_disk_gb) = (${RESERVED})
      where id = ${hostId}`.execute(tx);
    app.log.warn({ host_id: hostId }, 'what a host has promised was counted anew');
  });
}
