// Decides what billing meters for a machine, a volume or a snapshot in its present state. Pure functions. A resource is
// metered from the feed's entry of its creation to the entry of its removal, but not while it is in error.
import type { ResourceKind } from '@sandbar/contract/billing.ts';
import type { MachineRow, SnapshotRow, VolumeRow } from '../db/tables.ts';

/** The size that a meter counts. `snapshot_mb`: the stored bytes of a snapshot in MiB, rounded up. */
export type Metered = { vcpus: number; memory_mb: number; storage_gb: number; snapshot_mb: number };

/** A resource whose metered size changed. `after`: its size from now on; undefined: it is not metered any more. */
export type MeterChange = {
  resourceKind: ResourceKind;
  resourceId: string;
  metadata: Record<string, unknown>;
  wasMetered: boolean;
  after: Metered | undefined;
};

const NOTHING: Metered = { vcpus: 0, memory_mb: 0, storage_gb: 0, snapshot_mb: 0 };
const MIB = 1024 * 1024;

/**
 * The metered size of a machine: vCPUs, memory and disk while it runs, and only the disk while it is stopped or starts
 * again. Undefined for a machine that is not metered.
 */
export function meteredMachine(row: MachineRow): Metered | undefined {
  const { state, vcpus, memory_mb, rootfs_size_gb: storage_gb } = row;
  if (state === 'running') return { ...NOTHING, vcpus, memory_mb, storage_gb };
  // A machine that is being created is not metered: if its create fails, nobody has ever seen it.
  const isKept = state === 'stopped' || (state === 'provisioning' && row.started_at !== null);
  return isKept ? { ...NOTHING, storage_gb } : undefined;
}

/**
 * The metered size of a data volume or a kept root disk; undefined for a volume that is not metered. A root disk counts
 * as a volume while a machine is being created from it, because that machine is not metered yet.
 */
export function meteredVolume({ state, error, size_gb }: VolumeRow): Metered | undefined {
  return state === 'creating' || isLost({ state, error }) ? undefined : { ...NOTHING, storage_gb: size_gb };
}

/** The stored bytes of a snapshot in MiB, rounded up; undefined for a snapshot that is not metered. */
export function meteredSnapshot({ state, error, stored_bytes }: SnapshotRow): Metered | undefined {
  if (state === 'creating' || isLost({ state, error })) return undefined;
  return { ...NOTHING, snapshot_mb: Math.ceil(stored_bytes / MIB) };
}

/** Whether a resource is in error, or is being deleted after an error. */
const isLost = ({ state, error }: { state: string; error: string | null }): boolean =>
  state === 'error' || (state === 'deleting' && error !== null);

/** The change from one size to another; undefined when both are the same. */
export function meterChange(
  about: Pick<MeterChange, 'resourceKind' | 'resourceId' | 'metadata'>,
  before: Metered | undefined,
  after: Metered | undefined,
): MeterChange | undefined {
  const isSame = JSON.stringify(before) === JSON.stringify(after);
  return isSame ? undefined : { ...about, wasMetered: before !== undefined, after };
}
