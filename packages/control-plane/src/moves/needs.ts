// What a stopped machine needs of the host that it moves to.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { NO_ROOM, type Room } from '../hosts/room.ts';

/**
 * `processor`: the processor that machines must get on the new host, in the form of `hosts.processor`. Undefined: any
 * processor will do. Null: no host will do, because the processor of the present host is unknown.
 */
export type MoveNeeds = { room: Room; processor: string | null | undefined };

type Found = { volumes_gb: number; snapshots_gb: number; has_memory: boolean; processor: string | null };

/**
 * Returns the room for the machine's root disk, its data volumes and its snapshots. Nothing is reserved for snapshots; they
 * are counted here so that they do not fill the disk of a small host. A machine with memory snapshots needs the processor with
 * which they were taken, which is that of its host.
 */
export async function needsOfMove(
  app: App,
  { id, host_id, rootfs_size_gb }: Pick<MachineRow, 'id' | 'host_id' | 'rootfs_size_gb'>,
): Promise<MoveNeeds> {
  const { rows } = await sql<Found>`
    select (select coalesce(sum(size_gb), 0)::int from volumes where machine_id = ${id}) as volumes_gb,
      (select coalesce(ceil(sum(stored_bytes) / 2 ^ 30), 0)::int from snapshots where machine_id = ${id}) as snapshots_gb,
      exists (select from snapshots where machine_id = ${id} and kind = 'memory') as has_memory, processor
    from hosts where id = ${host_id}`.execute(app.db);
  const { volumes_gb = 0, snapshots_gb = 0, has_memory = false, processor = null } = rows[0] ?? {};
  return {
    room: { ...NO_ROOM, diskGb: rootfs_size_gb + volumes_gb + snapshots_gb },
    processor: has_memory ? processor : undefined,
  };
}
