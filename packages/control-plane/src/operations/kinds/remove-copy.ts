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
    (app, { operation }) => remove(app, operation.host_id, copyOf(operation)),
    async ({ app, tx, operation }) => {
      const room = { ...NO_ROOM, diskGb: -copyOf(operation).disk_gb };
      await reserveRoom(tx, operation.host_id, room, app.config.overcommit, false);
    },
  ),
};

async function remove(app: App, hostId: string, { kind, id, generation }: HostCopy): Promise<void> {
  const client = app.hosts.client(hostId);
  if (kind === 'volume') {
    await client.deleteVolume(id, generation);
    return;
  }
  await refuseWhileUsed(app, hostId, id);
  await client.deleteMachineCopy(id, generation).catch((error: unknown) => {
    const hasComeBack = error instanceof ServiceError && error.code === 'conflict';
    if (!hasComeBack) throw error;
  });
}

/**
 * The snapshots of a machine are deleted with its copy. A create that was admitted before the move may still read one of
 * them on this host. Creates that are admitted after the move go to the new host, because an admission locks the row of
 * its snapshot. Throws `conflict`, and the removal is tried again.
 */
async function refuseWhileUsed({ db }: App, hostId: string, machineId: string): Promise<void> {
  const { rows } = await sql`
    select from operations
    join machines on machines.id = operations.machine_id
    join snapshots on snapshots.id = machines.snapshot_id
    where operations.kind = 'create' and operations.finished_at is null and operations.host_id = ${hostId}
      and snapshots.machine_id = ${machineId}
    limit 1`.execute(db);
  if (rows.length === 0) return;
  throw new ServiceError('conflict', 'A machine is still being made here from a snapshot that has moved.');
}

function copyOf({ id, args }: Work['operation']): HostCopy {
  const [copy] = args.copies ?? [];
  if (!copy) throw new Error(`The operation ${id} has no copy to remove.`);
  return copy;
}
