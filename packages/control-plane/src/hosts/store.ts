// Rows of hosts, and the reservation of their memory: one conditional UPDATE, so that creates that race for the last
// room never promise it twice.
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';

/** Makes or updates the row of a host that said hello. */
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

/** All hosts, oldest first. */
export const listHosts = statement((db) => db.selectFrom('hosts').selectAll().orderBy('created_at').orderBy('id'));

/**
 * Promises `memoryMb` MiB of a host; false when that would be more than `overcommit` times what it has.
 * Holds the host's row until the transaction ends.
 */
export async function reserveMemory(tx: Tx, hostId: string, memoryMb: number, overcommit: number): Promise<boolean> {
  return (await addReservation(tx, hostId, memoryMb, overcommit)).length === 1;
}

/** Gives `memoryMb` MiB back. */
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
