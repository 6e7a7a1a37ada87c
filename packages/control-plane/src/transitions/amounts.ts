// How much a machine's or volume's row adds to its account's quota use and to its host's reservations. Pure functions.
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import type { Amounts } from '@sandbar/contract/tier-limits.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { NO_ROOM, type Room } from '../hosts/room.ts';

/** In these states a machine does not count toward the quota. A stopped machine does count. */
export const UNCOUNTED: readonly MachineState[] = ['error', 'destroyed'];
/** In these states the host has memory and vCPUs reserved for the machine. */
export const RUNNERS: readonly MachineState[] = ['provisioning', 'running'];

type Size = Pick<MachineRow, 'vcpus' | 'memory_mb' | 'rootfs_size_gb'>;

/** The quota amounts of a machine of this size, in any state that counts. */
export function machineAmounts({ vcpus, memory_mb, rootfs_size_gb }: Size): Partial<Amounts> {
  return { machines: 1, vcpus, memory_mb, storage_gb: rootfs_size_gb };
}

export const machineUse = (row: Size & Pick<MachineRow, 'state'>): Partial<Amounts> =>
  UNCOUNTED.includes(row.state) ? {} : machineAmounts(row);

/** What the host has reserved for the machine. A machine that does not run still needs its disk. */
export function machineRoom({ state, memory_mb, vcpus, rootfs_size_gb }: Size & Pick<MachineRow, 'state'>): Room {
  const diskGb = state === 'destroyed' ? 0 : rootfs_size_gb;
  return RUNNERS.includes(state) ? { memoryMb: memory_mb, vcpus, diskGb } : { memoryMb: 0, vcpus: 0, diskGb };
}

/** What the host has reserved for the volume: its disk, or nothing while the disk is the root disk of a machine. */
export const volumeRoom = ({ size_gb, state }: Pick<VolumeRow, 'size_gb' | 'state'>): Room => ({
  ...NO_ROOM,
  diskGb: state === 'taken' ? 0 : size_gb,
});

/**
 * The quota amounts of a volume. A root volume in state `taken` counts as zero, because its bytes already count as the
 * root disk of the machine that took it.
 */
export const volumeUse = ({ kind, size_gb, state }: Pick<VolumeRow, 'kind' | 'size_gb' | 'state'>): Partial<Amounts> =>
  state === 'taken' ? {} : { storage_gb: size_gb, ...(kind === 'data' ? { volumes: 1 } : {}) };
