// The room that a stopped machine needs on another host.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { NO_ROOM, type Room } from '../hosts/room.ts';

/** Returns the room for the machine's root disk and its data volumes. */
export async function roomOfMove(
  app: App,
  { id, rootfs_size_gb }: Pick<MachineRow, 'id' | 'rootfs_size_gb'>,
): Promise<Room> {
  const { sum } = await app.db
    .selectFrom('volumes')
    .select(sql<number>`coalesce(sum(size_gb), 0)::int`.as('sum'))
    .where('machine_id', '=', id)
    .executeTakeFirstOrThrow();
  return { ...NO_ROOM, diskGb: rootfs_size_gb + sum };
}
