// Asks a machine's host to make it what its row says, and accepts only a report that says so.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { memoryMs } from '../hosts/client.ts';
import { listWantedVolumes } from '../volumes/store.ts';

/**
 * Ensures the row's machine `running` or `stopped` at its present generation, with its volumes. Throws what the host
 * refused with, `host_unavailable`, or `internal_error` when the machine ended up as something else.
 */
export async function ensureOnHost(app: App, row: MachineRow, desired: 'running' | 'stopped'): Promise<MachineReport> {
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
        private_ip: row.private_ip,
        hostname: hostnameOf(row.id),
        ...(row.snapshot_id === null ? {} : { snapshot_id: row.snapshot_id }),
        ...(row.root_volume_id === null ? {} : { root_volume_id: row.root_volume_id }),
      },
      ...(row.restoring_snapshot_id === null ? {} : { restore_snapshot_id: row.restoring_snapshot_id }),
      // One that never ran has none.
      volumes: row.started_at === null ? [] : await listWantedVolumes(app, row.id),
    },
    app.config.timing.ensureMs + (mayResume(row) ? memoryMs(row.memory_mb) : 0),
  );
  if (report.status !== desired) {
    throw new ServiceError('internal_error', `The machine is ${report.status}: ${report.reason ?? 'no reason given'}`);
  }
  return report;
}

/** Whether its first start may have to read all of a memory snapshot. */
const mayResume = (row: MachineRow): boolean => row.snapshot_id !== null && row.started_at === null;

/** The random end of the id: unique enough to read, short enough for a prompt. */
const hostnameOf = (id: string) => `m-${id.slice(-12)}`;
