// The SQL of hosts. One conditional UPDATE reserves room, so parallel creates cannot reserve more than a host has.
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
    pool_ready: info.pool?.ready ?? 0,
    pool_target: info.pool?.target ?? 0,
    images: JSON.stringify(info.images),
    templates: JSON.stringify(info.templates ?? []),
    processor: info.processor ?? null,
  };
  await db
    .insertInto('hosts')
    .values({ id: info.host_id, ...facts })
    .onConflict((conflict) => conflict.column('id').doUpdateSet({ ...facts, seen_at: sql<Date>`now()` }))
    .execute();
}

/** Returns the hosts of the fleet, oldest first, without those that were removed. */
export const listHosts = statement((db) =>
  db.selectFrom('hosts').selectAll().where('removed_at', 'is', null).orderBy('created_at').orderBy('id'),
);

/** Returns what people call a host in texts for clients: its name, else its id. Never its address. */
export async function nameOfHost(db: Db | Tx, id: string): Promise<string> {
  const host = await db.selectFrom('hosts').select('name').where('id', '=', id).executeTakeFirst();
  return host?.name || id;
}

/**
 * Reserves `room` on a host, or releases it where a number is negative. Returns false, and changes nothing, if the host
 * would then have reserved more than `overcommit` times what it has. Only numbers above zero are checked: a start,
 * which reserves no disk, succeeds on a full disk, and room can always be released. `isNew`: the room is for a machine
 * or volume that is new on the host. The reservation is then refused too if the host takes nothing new, or no new disk.
 * The host's row stays locked until the transaction ends.
 */
export async function reserveRoom(
  tx: Tx,
  hostId: string,
  room: Room,
  overcommit: Overcommit,
  isNew: boolean,
): Promise<boolean> {
  return (await addReservation(tx, hostId, room, overcommit, isNew)).length === 1;
}

const addReservation = statement((db, hostId: string, room: Room, factors: Overcommit, isNew: boolean) =>
  db
    .updateTable('hosts')
    .set({
      reserved_memory_mb: sql`reserved_memory_mb + ${room.memoryMb}::int`,
      reserved_vcpus: sql`reserved_vcpus + ${room.vcpus}::int`,
      reserved_disk_gb: sql`reserved_disk_gb + ${room.diskGb}::int`,
    })
    .where('id', '=', hostId)
    .where(
      sql<boolean>`(removed_at is null
        or greatest(${room.memoryMb}::int, ${room.vcpus}::int, ${room.diskGb}::int) <= 0)`,
    )
    .where(
      sql<boolean>`(${room.memoryMb}::int <= 0
        or reserved_memory_mb + ${room.memoryMb}::int <= memory_mb * ${factors.memory}::float8)`,
    )
    .where(
      sql<boolean>`(${room.vcpus}::int <= 0 or reserved_vcpus + ${room.vcpus}::int <= cpus * ${factors.vcpus}::float8)`,
    )
    .where(
      sql<boolean>`(${room.diskGb}::int <= 0
        or reserved_disk_gb + ${room.diskGb}::int <= (disk_mb - disk_reserve_mb) / 1024.0 * ${factors.disk}::float8)`,
    )
    .where(
      sql<boolean>`(not ${isNew}::bool or (removed_at is null and not draining
        and (${room.diskGb}::int <= 0 or disk_free_mb > disk_reserve_mb)))`,
    )
    .returning('id'),
);
