// Tells a host the desired state of a machine (running or stopped, sizes, volumes) and checks that the host has reached
// it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineReport, MachineVolume } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { memoryMs } from '../hosts/client.ts';
import { listAttachedVolumes } from '../volumes/store.ts';

/**
 * Changes to make in addition to the machine's state: attach volumes, detach a volume, or restore a snapshot. With
 * `onlyIfRunning`, the host changes nothing if the machine does not run.
 */
export type Wanted = {
  attaching?: readonly MachineVolume[];
  detachingId?: string;
  restoreSnapshotId?: string;
  onlyIfRunning?: boolean;
};

/**
 * Makes the host run or stop the machine with the row's generation and its volumes. Returns the host's report. Throws
 * the host's refusal, `host_unavailable`, or `internal_error` if the machine is in another state than `desired`
 * afterwards.
 */
export async function ensureOnHost(
  app: App,
  row: MachineRow,
  desired: 'running' | 'stopped',
  wanted: Wanted = {},
): Promise<MachineReport> {
  const report = await app.hosts.client(row.host_id).ensureMachine(
    row.id,
    {
      generation: row.generation,
      desired,
      spec: {
        vcpus: row.vcpus,
        memory_mb: row.memory_mb,
        rootfs_size_gb: row.rootfs_size_gb,
        stack: row.stack,
        hostname: hostnameOf(row.id),
        // Null before the first run: the host then leases an address and reports it.
        ...(row.private_ip === null ? {} : { private_ip: row.private_ip }),
        ...(row.snapshot_id === null ? {} : { snapshot_id: row.snapshot_id }),
        ...(row.root_volume_id === null ? {} : { root_volume_id: row.root_volume_id }),
      },
      ...(wanted.restoreSnapshotId === undefined ? {} : { restore_snapshot_id: wanted.restoreSnapshotId }),
      volumes: await listWanted(app, row, wanted),
    },
    app.config.timing.ensureMs + (mayResume(row) ? memoryMs(row.memory_mb) : 0),
    { onlyIfRunning: wanted.onlyIfRunning === true },
  );
  if (report.status !== desired) {
    throw new ServiceError('internal_error', `The machine is ${report.status}: ${report.reason ?? 'no reason given'}`);
  }
  return report;
}

/** Returns the data volumes that the machine should have, sorted by mount path. So `/a` is mounted before `/a/b`. */
async function listWanted(app: App, row: MachineRow, wanted: Wanted): Promise<MachineVolume[]> {
  const { attaching = [], detachingId } = wanted;
  // A machine that never ran has only the volumes that its create attaches.
  const attached = row.started_at === null ? [] : await listAttachedVolumes(app.db, row.id);
  const changing = new Set([detachingId, ...attaching.map(({ volume_id }) => volume_id)]);
  const volumes = [...attached.filter(({ volume_id }) => !changing.has(volume_id)), ...attaching];
  return volumes.sort((a, b) => (a.mount_path < b.mount_path ? -1 : 1));
}

/**
 * Returns true if this is the first start of a machine from a snapshot. The host may then have to read a whole memory
 * snapshot, so the call gets more time.
 */
const mayResume = (row: MachineRow): boolean => row.snapshot_id !== null && row.started_at === null;

/**
 * The hostname of a machine that takes no clone from the host's pool: `m-` and the last 12 characters of its id, which
 * are random. They are unique enough in practice and short enough for a shell prompt.
 */
const hostnameOf = (id: string) => `m-${id.slice(-12)}`;
