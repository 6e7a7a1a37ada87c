// Begins moves. One transaction reserves the room on the new host and inserts the operation, which also keeps every other
// operation away from what moves. The reconciler of any replica performs it.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { HostCopy, MachineRow, OperationArguments, VolumeRow } from '../db/tables.ts';
import { NO_ROOM } from '../hosts/room.ts';
import { reserveRoom } from '../hosts/store.ts';
import { fleetIsFull } from '../machines/refusals.ts';
import { bumpGeneration } from '../machines/store.ts';
import { insertDue } from '../operations/store.ts';
import { lockSnapshotsOf } from '../snapshots/store.ts';
import { lockVolume, lockVolumesOf, volumeNotFound } from '../volumes/store.ts';
import { whyMachineStays } from './stays.ts';

/** A volume that is to move. These columns never change. */
export type MovableVolume = Pick<VolumeRow, 'id' | 'account_id'>;
/** `forMachineId`: the machine to which a request will attach the volume. */
export type VolumeRoute = { fromHostId: string; toHostId: string; forMachineId?: string; actor: ActivityActor };

/**
 * Begins to move a detached volume and returns the id of the operation, or undefined when the volume is on that host
 * already. The caller has checked that no operation on the volume is unfinished. Throws `conflict` when the volume is
 * attached or in error or cannot go there yet, and `fleet_capacity` when the host does not take it.
 */
export async function beginVolumeMove(
  app: App,
  tx: Tx,
  { id, account_id }: MovableVolume,
  { fromHostId, toHostId, forMachineId, actor }: VolumeRoute,
): Promise<string | undefined> {
  // Insert the operation before locking the volume (see the lock order in db/transaction.ts).
  const operationId = await insertDue(tx, {
    ...{ account_id, host_id: fromHostId, machine_id: null, volume_id: id, snapshot_id: null },
    ...{ kind: 'move', actor, args: '{}' },
  });
  const volume = await lockVolume(tx, id);
  if (!volume || volume.state === 'deleting' || volume.state === 'creating') throw volumeNotFound();
  if (volume.host_id === toHostId) {
    await tx.deleteFrom('operations').where('id', '=', operationId).execute();
    return undefined;
  }
  checkMovable(volume, fromHostId);
  await refuseLeftCopy(tx, id, toHostId);
  const generation = await bumpVolume(tx, id);
  await finishBeginning(app, tx, operationId, {
    to_host_id: toHostId,
    ...(forMachineId === undefined ? {} : { for_machine_id: forMachineId }),
    copies: [{ kind: 'volume', id, generation, disk_gb: volume.size_gb }],
  });
  return operationId;
}

/**
 * Begins to move a stopped machine with its data volumes and snapshots and returns the id of the operation. The caller has
 * locked the machine and checked that no operation on it is unfinished. Throws `conflict` when something of the machine
 * cannot move, and `fleet_capacity` when the host does not take it.
 */
export async function beginMachineMove(
  app: App,
  tx: Tx,
  machine: MachineRow,
  { toHostId, actor }: { toHostId: string; actor: ActivityActor },
): Promise<string> {
  const { id, account_id, host_id, rootfs_size_gb } = machine;
  const operationId = await insertDue(tx, {
    ...{ account_id, host_id, machine_id: id, volume_id: null, snapshot_id: null },
    ...{ kind: 'move', actor, args: '{}' },
  });
  const volumes = await lockVolumesOf(tx, id);
  const why = whyMachineStays(machine, volumes, await lockSnapshotsOf(tx, id));
  if (why !== undefined) throw new ServiceError('conflict', why);
  for (const subject of [machine, ...volumes]) await refuseLeftCopy(tx, subject.id, toHostId);
  const copies: HostCopy[] = [];
  for (const volume of volumes) {
    const generation = await bumpVolume(tx, volume.id);
    copies.push({ kind: 'volume', id: volume.id, generation, disk_gb: volume.size_gb });
  }
  const { generation } = await bumpGeneration(tx, id);
  // The machine comes last: its host must have its volumes when it arrives.
  copies.push({ kind: 'machine', id, generation, disk_gb: rootfs_size_gb });
  await finishBeginning(app, tx, operationId, { to_host_id: toHostId, copies });
  return operationId;
}

async function bumpVolume(tx: Tx, id: string): Promise<number> {
  const { generation } = await tx
    .updateTable('volumes')
    .set({ generation: sql`generation + 1` })
    .where('id', '=', id)
    .returning('generation')
    .executeTakeFirstOrThrow();
  return generation;
}

function checkMovable({ id, state, machine_id, host_id }: VolumeRow, fromHostId: string): void {
  if (state !== 'available' || machine_id !== null) {
    const what = machine_id === null ? state : `in use by machine ${machine_id}`;
    throw new ServiceError('conflict', `The volume ${id} is ${what}: it cannot move to another host now.`);
  }
  if (host_id !== fromHostId) throw new ServiceError('conflict', `The volume ${id} has just moved. Retry.`);
}

/**
 * A copy that an earlier move left on the host must be deleted first. Otherwise its delete could come when a machine has
 * just taken the new copy over.
 */
async function refuseLeftCopy(tx: Tx, id: string, hostId: string): Promise<void> {
  const left = await tx
    .selectFrom('operations')
    .select('id')
    .where('kind', '=', 'remove_copy')
    .where('finished_at', 'is', null)
    .where('host_id', '=', hostId)
    .where(sql<boolean>`args @> ${JSON.stringify({ copies: [{ id }] })}::jsonb`)
    .executeTakeFirst();
  if (!left) return;
  const detail = 'An earlier copy is still being deleted on that host. Retry when it is gone.';
  throw new ServiceError('conflict', detail, { retryAfterSec: 2 });
}

/** Reserves the room on the new host and writes down what goes there. Throws `fleet_capacity`. */
async function finishBeginning(
  app: App,
  tx: Tx,
  operationId: string,
  args: OperationArguments & { to_host_id: string; copies: HostCopy[] },
): Promise<void> {
  const room = { ...NO_ROOM, diskGb: args.copies.reduce((sum, copy) => sum + copy.disk_gb, 0) };
  await tx
    .updateTable('operations')
    .set({ args: JSON.stringify(args) })
    .where('id', '=', operationId)
    .execute();
  if (!(await reserveRoom(tx, args.to_host_id, room, app.config.overcommit, true))) throw fleetIsFull(room);
}
