// The operation that deletes a copy which a move has left on a host, and then releases the room of the copy. With a
// machine its snapshots there are deleted too. The operation is repeated until it succeeds. A copy of a later generation
// stays: the object has come back meanwhile.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../../app.ts';
import type { HostCopy } from '../../db/tables.ts';
import { NO_ROOM } from '../../hosts/room.ts';
import { reserveRoom } from '../../hosts/store.ts';
import { act, type Definition, type Work } from '../definition.ts';

export const REMOVE_COPY: Definition = {
  act: act(
    (app, { operation }) => remove(app, operation, copyOf(operation)),
    async ({ app, tx, operation }) => {
      const room = { ...NO_ROOM, diskGb: -copyOf(operation).disk_gb };
      await reserveRoom(tx, operation.host_id, room, app.config.overcommit, false);
    },
  ),
};

async function remove(app: App, operation: Work['operation'], { kind, id, generation }: HostCopy): Promise<void> {
  const client = app.hosts.client(operation.host_id);
  if (kind === 'volume') {
    await client.deleteVolume(id, generation);
    return;
  }
  await refuseWhileUsed(app, operation, id);
  await client.deleteMachineCopy(id, generation).catch((error: unknown) => {
    const hasComeBack = error instanceof ServiceError && error.code === 'conflict';
    if (!hasComeBack) throw error;
  });
}

/**
 * The snapshots of a machine are deleted with its copy. Throws `conflict` while one of them is still needed on the host,
 * and then the removal is tried again:
 * - A create that is older than this removal may still read it there. Later creates read it on the new host or fetch it
 *   from the object store.
 * - Its row names the host. That is so only when a replica of an earlier version, which does not know that snapshots move,
 *   has recorded the move.
 */
async function refuseWhileUsed({ db }: App, { id, host_id }: Work['operation'], machineId: string): Promise<void> {
  const { rows } = await sql<{ is_read: boolean; is_named: boolean }>`
    select exists (
      select from operations
      join machines on machines.id = operations.machine_id
      join snapshots on snapshots.id = machines.snapshot_id
      where operations.kind = 'create' and operations.finished_at is null and operations.host_id = ${host_id}
        and operations.created_at <= (select created_at from operations where id = ${id})
        and snapshots.machine_id = ${machineId}
    ) as is_read,
    exists (select from snapshots where machine_id = ${machineId} and host_id = ${host_id}) as is_named`.execute(db);
  const [{ is_read, is_named } = { is_read: false, is_named: false }] = rows;
  if (is_read) throw new ServiceError('conflict', 'A machine is still being made here from a snapshot that has moved.');
  if (is_named) throw new ServiceError('conflict', 'The database says that snapshots of the machine are still here.');
}

function copyOf({ id, args }: Work['operation']): HostCopy {
  const [copy] = args.copies ?? [];
  if (!copy) throw new Error(`The operation ${id} has no copy to remove.`);
  return copy;
}
