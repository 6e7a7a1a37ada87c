// Which entry of the feed a change makes: pure functions of the rows before and after.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import type { ExecRow, MachineRow } from '../db/tables.ts';

/** The entry of a machine's change of state; none for what is no finished action (a start that failed, a crash). */
export function activityOf(old: MachineRow, row: MachineRow, actor: ActivityActor): NewActivity[] {
  if (old.state === row.state) return [];
  const about = { actor, machineId: row.id };
  switch (row.state) {
    case 'running':
      return [old.started_at === null ? created(row, about) : { ...about, action: 'machine.started', metadata: {} }];
    case 'stopped':
      // A start that failed goes back to stopped as well, and nothing was done.
      return old.state === 'running' ? [{ ...about, action: 'machine.stopped', metadata: {} }] : [];
    case 'destroyed': {
      const metadata = { preserve_storage: row.keep_volume_id !== null, snapshots_deleted: row.snapshots_deleted };
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

/** The entry of a job that ended, however it did. */
export function activityOfJob(row: Pick<ExecRow, 'machine_id' | 'exit_code' | 'timeout_sec'>): NewActivity {
  const metadata = { exit_code: row.exit_code, timeout_sec: row.timeout_sec };
  return { action: 'exec', actor: 'user', machineId: row.machine_id, metadata };
}
