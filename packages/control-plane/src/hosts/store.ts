// The SQL of hosts. Memory is reserved by one conditional UPDATE, so parallel creates cannot both reserve the last free
// memory.
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';

/** Inserts or updates the row of a host with the facts that its agent reported. */
export async function registerHost(db: Db, info: HostInfo): Promise<void> {
  const facts = {
    version: info.version,
    boot_id: info.boot_id,
    isolation: info.isolation,
    network: info.network,
    subnet: info.subnet,
    cpus: info.cpus,
    memory_mb: info.memory_mb,
    images: JSON.stringify(info.images),
  };
  await db
    .insertInto('hosts')
    .values({ id: info.host_id, ...facts })
    .onConflict((conflict) => conflict.column('id').doUpdateSet({ ...facts, seen_at: sql<Date>`now()` }))
    .execute();
}

/** Returns all hosts, oldest first. */
export const listHosts = statement((db) => db.selectFrom('hosts').selectAll().orderBy('created_at').orderBy('id'));

/**
 * Reserves `memoryMb` MiB on a host. Returns false if the host would then have promised more than `overcommit` times
 * its memory. The host's row stays locked until the transaction ends.
 */
export async function reserveMemory(tx: Tx, hostId: string, memoryMb: number, overcommit: number): Promise<boolean> {
  return (await addReservation(tx, hostId, memoryMb, overcommit)).length === 1;
}

/** Releases `memoryMb` MiB that were reserved on a host. */
export async function releaseMemory(tx: Tx, hostId: string, memoryMb: number): Promise<void> {
  await addReservation(tx, hostId, -memoryMb, Number.POSITIVE_INFINITY);
}

const addReservation = statement((db, hostId: string, memoryMb: number, overcommit: number) =>
  db
    .updateTable('hosts')
    .set({ reserved_memory_mb: sql`reserved_memory_mb + ${memoryMb}::int` })
    .where('id', '=', hostId)
    .where(sql<boolean>`reserved_memory_mb + ${memoryMb}::int <= memory_mb * ${overcommit}::float8`)
    .returning('id'),
);
