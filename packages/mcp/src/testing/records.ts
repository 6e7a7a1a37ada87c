// Records of the API with fixed values, for tests of the tools.
import type { Exec, ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import type { FileEntry } from '@sandbar/contract/file.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';

export const MACHINE_ID = '11111111-1111-4111-8111-111111111111';
export const JOB_ID = '22222222-2222-4222-8222-222222222222';
export const SNAPSHOT_ID = '33333333-3333-4333-8333-333333333333';
const ACCOUNT_ID = '44444444-4444-4444-8444-444444444444';
const AT = '2026-01-02T03:04:05.000Z';

export function machineOf(changes: Partial<Machine> = {}): Machine {
  return {
    ...{ id: MACHINE_ID, account_id: ACCOUNT_ID, name: 'box', state: 'running', vcpus: 2, memory_mb: 512 },
    ...{ rootfs_size_gb: 10, stack: 'python', private_ip: '10.0.0.4', metadata: {}, snapshot_id: null },
    ...{ root_volume_id: null, isolation: 'kvm', error: null, operation: null, expires_at: null, on_expiry: 'destroy' },
    ...{ created_at: AT, started_at: AT, stopped_at: null, destroyed_at: null },
    ...changes,
  };
}

export function jobOf(changes: Partial<Exec> = {}): Exec {
  return {
    ...{ id: JOB_ID, machine_id: MACHINE_ID, name: '', status: 'exited', exit_code: 0, signal: null },
    ...{ timeout_sec: null, stdout_bytes: 0, stderr_bytes: 0, truncated: false, output_expired: false },
    ...{ created_at: AT, finished_at: AT },
    ...changes,
  };
}

/** One page of the output of an ended job: at most `limit` bytes of `output`, beginning at `offset`. */
export function pageOf(output: Buffer, stream: OutputStream, offset = 0, limit = 65_536): ExecOutput {
  const data = output.subarray(offset, offset + limit);
  const next = offset + data.length;
  const text = data.toString('base64');
  const [total, eof] = [output.length, next === output.length];
  return { exec_id: JOB_ID, stream, offset, data: text, next_offset: next, total_bytes: total, eof };
}

export function snapshotOf(changes: Partial<Snapshot> = {}): Snapshot {
  return {
    ...{ id: SNAPSHOT_ID, account_id: ACCOUNT_ID, machine_id: MACHINE_ID, name: 'before', kind: 'disk', size_gb: 10 },
    ...{ stored_bytes: 1, state: 'ready', error: null, created_at: AT },
    ...changes,
  };
}

export function entryOf(changes: Partial<FileEntry> = {}): FileEntry {
  return {
    ...{ path: '/root/a', name: 'a', type: 'file', size: 3, mode: '0644', user: 'root', group: 'root' },
    ...{ modified_at: AT },
    ...changes,
  };
}
