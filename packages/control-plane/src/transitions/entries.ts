// Which entries of the activity feed a change makes: pure functions of the rows before and after. `undefined` stands for
// a row that is not there.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import type { ExecRow, MachineRow, SnapshotRow, VolumeRow } from '../db/tables.ts';

/** What the entry of a destroyed machine tells besides its row. */
export type Told = { keptDisk?: boolean; snapshotsDeleted?: number };

/** No entry for what is no finished act: a start that failed, a machine that crashed. */
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
      // A start that failed goes back to stopped as well, and nothing was done.
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
  const [had, has] = [before?.machine_id ?? null, after?.machine_id ?? null];
  if (isTaken || had === has) return [];
  if (has !== null) return [{ ...about, action: 'volume.attached', machineId: has }];
  return had === null ? [] : [{ ...about, action: 'volume.detached', machineId: had }];
}

/** A snapshot that no client has seen is not told of. */
export function entriesOfSnapshot(
  before: SnapshotRow,
  after: SnapshotRow | undefined,
  actor: ActivityActor,
): NewActivity[] {
  const about = { actor, machineId: before.machine_id, metadata: { snapshot_id: before.id } };
  if (before.state === 'creating') return after?.state === 'ready' ? [{ ...about, action: 'snapshot.created' }] : [];
  return after ? [] : [{ ...about, action: 'snapshot.deleted' }];
}

/** The entry of a job that ended, however it did. */
export function activityOfJob(row: Pick<ExecRow, 'machine_id' | 'exit_code' | 'timeout_sec'>): NewActivity {
  const metadata = { exit_code: row.exit_code, timeout_sec: row.timeout_sec };
  return { action: 'exec', actor: 'user', machineId: row.machine_id, metadata };
}
