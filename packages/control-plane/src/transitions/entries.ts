// Decides which entries of the activity feed a change of a row creates. Pure functions of the row before and the row
// after the change. `before` is undefined for a new row, and `after` is undefined for a deleted row.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import type { ExecRow, MachineRow, SnapshotRow, VolumeRow } from '../db/tables.ts';

/** Details of a destroyed machine's entry that are not in the machine's row. */
export type Told = { keptDisk?: boolean; snapshotsDeleted?: number };

/**
 * Returns the entry for a machine that was created, started, stopped or destroyed. A failed start and a crash create no
 * entry.
 */
export function entriesOfMachine(
  before: MachineRow | undefined,
  after: MachineRow | undefined,
  actor: ActivityActor,
  { keptDisk = false, snapshotsDeleted = 0 }: Told,
): NewActivity[] {
  if (!before || !after || before.state === after.state) return [];
  const about = { actor, machineId: after.id };
  switch (after.state) {
    case 'running':
      return [
        before.started_at === null ? created(after, about) : { ...about, action: 'machine.started', metadata: {} },
      ];
    case 'stopped':
      // A failed start also leads to `stopped`, but nothing was stopped, so it creates no entry.
      return before.state === 'running' ? [{ ...about, action: 'machine.stopped', metadata: {} }] : [];
    case 'destroyed': {
      const metadata = { preserve_storage: keptDisk, snapshots_deleted: snapshotsDeleted };
      return [{ ...about, action: 'machine.destroyed', metadata }];
    }
    default:
      return [];
  }
}

function created(row: MachineRow, about: { actor: ActivityActor; machineId: string }): NewActivity {
  const { stack, vcpus, memory_mb, rootfs_size_gb } = row;
  return { ...about, action: 'machine.created', metadata: { stack, vcpus, memory_mb, rootfs_gb: rootfs_size_gb } };
}

export function entriesOfVolume(
  before: VolumeRow | undefined,
  after: VolumeRow | undefined,
  actor: ActivityActor,
): NewActivity[] {
  const row = after ?? before;
  if (!row) return [];
  const about = { actor, metadata: { volume_id: row.id } };
  if (before?.state === 'creating' && after) {
    return [{ actor, action: 'volume.created', metadata: { volume_id: row.id, size_gb: row.size_gb } }];
  }
  if (before?.state === 'deleting' && !after) return [{ ...about, action: 'volume.deleted' }];
  const isTaken = before?.state === 'taken' || after?.state === 'taken';
  const [had, has] = [holderOf(before), holderOf(after)];
  if (isTaken || had === has) return [];
  if (has !== null) return [{ ...about, action: 'volume.attached', machineId: has }];
  return had === null ? [] : [{ ...about, action: 'volume.detached', machineId: had }];
}

/** The machine that has the volume. An available volume may name a machine that is still being created. */
const holderOf = (row: VolumeRow | undefined): string | null =>
  row && row.state !== 'available' ? row.machine_id : null;

/**
 * Returns the entry for a snapshot that was created or deleted. A snapshot that was never ready creates no entry,
 * because no client has seen it.
 */
export function entriesOfSnapshot(
  before: SnapshotRow,
  after: SnapshotRow | undefined,
  actor: ActivityActor,
): NewActivity[] {
  const about = { actor, machineId: before.machine_id, metadata: { snapshot_id: before.id } };
  if (before.state === 'creating') return after?.state === 'ready' ? [{ ...about, action: 'snapshot.created' }] : [];
  return after ? [] : [{ ...about, action: 'snapshot.deleted' }];
}

/** Returns the entry for a job that ended, whether it exited, timed out, was cancelled or was lost. */
export function activityOfJob(row: Pick<ExecRow, 'machine_id' | 'exit_code' | 'timeout_sec'>): NewActivity {
  const metadata = { exit_code: row.exit_code, timeout_sec: row.timeout_sec };
  return { action: 'exec', actor: 'user', machineId: row.machine_id, metadata };
}
