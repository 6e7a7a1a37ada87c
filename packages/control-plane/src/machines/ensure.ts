// Asks a machine's host to make it what its row says, and accepts only a report that says so.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineReport, MachineVolume } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { memoryMs } from '../hosts/client.ts';
import { listAttachedVolumes } from '../volumes/store.ts';

/** What else the host is to do besides the state: data volumes that come or go, and a snapshot to go back to. */
export type Wanted = { attaching?: MachineVolume; detachingId?: string; restoreSnapshotId?: string };

/**
 * Ensures the row's machine `running` or `stopped` at its present generation, with its volumes. Throws what the host
 * refused with, `host_unavailable`, or `internal_error` when the machine ended up as something else.
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
        // The host leases one when it makes the machine.
        ...(row.private_ip === null ? {} : { private_ip: row.private_ip }),
        ...(row.snapshot_id === null ? {} : { snapshot_id: row.snapshot_id }),
        ...(row.root_volume_id === null ? {} : { root_volume_id: row.root_volume_id }),
      },
      ...(wanted.restoreSnapshotId === undefined ? {} : { restore_snapshot_id: wanted.restoreSnapshotId }),
      volumes: await listWanted(app, row, wanted),
    },
    app.config.timing.ensureMs + (mayResume(row) ? memoryMs(row.memory_mb) : 0),
  );
  if (report.status !== desired) {
    throw new ServiceError('internal_error', `The machine is ${report.status}: ${report.reason ?? 'no reason given'}`);
  }
  return report;
}

/** The data volumes that the machine is to have. A path that another volume's path lies below comes first. */
async function listWanted(app: App, row: MachineRow, { attaching, detachingId }: Wanted): Promise<MachineVolume[]> {
  // A machine that never ran has none.
  const attached = row.started_at === null ? [] : await listAttachedVolumes(app.db, row.id);
  const others = attached.filter(({ volume_id: id }) => id !== detachingId && id !== attaching?.volume_id);
  const volumes = attaching ? [...others, attaching] : others;
  return volumes.sort((a, b) => (a.mount_path < b.mount_path ? -1 : 1));
}

/** Whether its first start may have to read all of a memory snapshot. */
const mayResume = (row: MachineRow): boolean => row.snapshot_id !== null && row.started_at === null;

/** The random end of the id: unique enough to read, short enough for a prompt. */
const hostnameOf = (id: string) => `m-${id.slice(-12)}`;
