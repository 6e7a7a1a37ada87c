// The data volumes that a new machine has from its first boot. Until the machine runs, their rows stay in state
// `available` with the id of the machine, so no other request can use them. The create operation attaches them, or
// releases them when it fails.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import { defaultMountPath } from '@sandbar/contract/volume-states.ts';
import type { Tx } from '../db/database.ts';
import type { VolumeRow } from '../db/tables.ts';
import { MustMove } from '../moves/request.ts';
import { checkFree, checkMountPath } from './attachable.ts';
import { volumeNotFound } from './store.ts';

/**
 * Returns the requested volumes with all mount paths, sorted by id, and ids in lower case. Throws `validation_error`
 * for a forbidden mount path, and for a volume or a path that is there twice.
 */
export function readBootVolumes(asked: NonNullable<MachineCreate['volumes']>): MachineVolume[] {
  const volumes = asked.map(({ volume_id, mount_path }) => {
    const id = volume_id.toLowerCase();
    return { volume_id: id, mount_path: mount_path ?? defaultMountPath(id) };
  });
  const [ids, paths] = [new Set<string>(), new Set<string>()];
  for (const { volume_id, mount_path } of volumes) {
    checkMountPath(mount_path);
    if (ids.has(volume_id)) throw new ServiceError('validation_error', `volumes must not have ${volume_id} twice.`);
    if (paths.has(mount_path))
      throw new ServiceError('validation_error', `volumes must not have the mount_path ${mount_path} twice.`);
    ids.add(volume_id);
    paths.add(mount_path);
  }
  return volumes.sort((a, b) => (a.volume_id < b.volume_id ? -1 : 1));
}

/**
 * Checks that a new machine of the account can have the volumes. `rows` are the locked rows of the volumes, and perhaps
 * others. Returns the rows of the volumes. Throws `not_found` and `conflict`.
 */
export function checkBootVolumes(
  accountId: string,
  asked: readonly MachineVolume[],
  rows: readonly VolumeRow[],
): VolumeRow[] {
  return asked.map(({ volume_id }) => {
    const row = rows.find(({ id }) => id === volume_id);
    if (row?.account_id !== accountId || HIDDEN.includes(row.state)) throw volumeNotFound();
    checkFree(row);
    return row;
  });
}

const HIDDEN: readonly VolumeRow['state'][] = ['creating', 'deleting', 'taken'];

/**
 * Throws `conflict` when an operation of a volume is under way, and `MustMove` when it is a move. An operation that
 * begins later waits for the volume's row, and then finds the machine in it.
 */
export async function checkIdle(tx: Tx, volumes: readonly VolumeRow[]): Promise<void> {
  const ids = volumes.map(({ id }) => id);
  if (ids.length === 0) return;
  const row = await tx
    .selectFrom('operations')
    .select(['volume_id', 'kind', 'args'])
    .where('volume_id', 'in', ids)
    .where('finished_at', 'is', null)
    .executeTakeFirst();
  if (!row) return;
  const { to_host_id } = row.args;
  const moving = volumes.filter(({ id }) => id === row.volume_id);
  if (to_host_id !== undefined) throw new MustMove(moving, to_host_id);
  const detail = `An ${row.kind} of volume ${row.volume_id} is under way. Retry when it is over.`;
  throw new ServiceError('conflict', detail, { retryAfterSec: 2 });
}
