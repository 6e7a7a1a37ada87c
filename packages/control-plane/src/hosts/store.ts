// The SQL of hosts. Room is reserved by one conditional UPDATE, so parallel creates cannot both reserve the last of it.
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { Overcommit, Room } from './room.ts';

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
    disk_mb: info.disk.total_mb,
    disk_free_mb: info.disk.free_mb,
    disk_reserve_mb: info.disk.reserve_mb,
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
 * Promises `room` of a host to a machine or a volume, or takes back what is negative. Returns false, and changes
 * nothing, if the host would then have promised more of something than `overcommit` times what it has. What is not
 * asked for is not checked, so a start needs no disk, and room can always be given back. The host's row stays locked
 * until the transaction ends.
 */
export async function reserveRoom(tx: Tx, hostId: string, room: Room, overcommit: Overcommit): Promise<boolean> {
  return (await addReservation(tx, hostId, room, overcommit)).length === 1;
}

const addReservation = statement((db, hostId: string, room: Room, factors: Overcommit) =>
  db
    .updateTable('hosts')
    .set({
      reserved_memory_mb: sql`reserved_memory_mb + ${room.memoryMb}::int`,
      reserved_vcpus: sql`reserved_vcpus + ${room.vcpus}::int`,
      reserved_disk_gb: sql`reserved_disk_gb + ${room.diskGb}::int`,
    })
    .where('id', '=', hostId)
    .where(
      sql<boolean>`(${room.memoryMb}::int <= 0
        or reserved_memory_mb + ${room.memoryMb}::int <= memory_mb * ${factors.memory}::float8)`,
    )
    .where(
      sql<boolean>`(${room.vcpus}::int <= 0 or reserved_vcpus + ${room.vcpus}::int <= cpus * ${factors.vcpus}::float8)`,
    )
    .where(
      sql<boolean>`(${room.diskGb}::int <= 0
        or reserved_disk_gb + ${room.diskGb}::int <= (disk_mb - disk_reserve_mb) / 1024 * ${factors.disk}::float8)`,
    )
    .returning('id'),
);
