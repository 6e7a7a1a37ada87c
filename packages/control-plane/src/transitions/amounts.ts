// How much a machine or volume row counts toward its account's quota and its host's promised memory. Pure functions.
import type { MachineState } from '@sandbar/contract/machine.ts';
import type { Amounts } from '@sandbar/contract/quota.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';

/** In these states a machine does not count toward the quota. A stopped machine does count. */
export const UNCOUNTED: readonly MachineState[] = ['error', 'destroyed'];
/** In these states the machine's memory is promised by its host. */
export const MEMORY_HOLDERS: readonly MachineState[] = ['provisioning', 'running'];

type Size = Pick<MachineRow, 'vcpus' | 'memory_mb' | 'rootfs_size_gb'>;

/** The quota amounts of a machine of this size, in any state that counts. */
export function machineAmounts({ vcpus, memory_mb, rootfs_size_gb }: Size): Partial<Amounts> {
  return { machines: 1, vcpus, memory_mb, storage_gb: rootfs_size_gb };
}

export const machineUse = (row: Size & Pick<MachineRow, 'state'>): Partial<Amounts> =>
  UNCOUNTED.includes(row.state) ? {} : machineAmounts(row);

/** The memory that the host has promised to the machine, in MiB. */
export const promisedMemory = ({ state, memory_mb }: Pick<MachineRow, 'state' | 'memory_mb'>): number =>
  MEMORY_HOLDERS.includes(state) ? memory_mb : 0;

/**
 * The quota amounts of a volume. A root volume in state `taken` counts as zero, because its bytes already count as the
 * root disk of the machine that took it.
 */
export const volumeUse = ({ kind, size_gb, state }: Pick<VolumeRow, 'kind' | 'size_gb' | 'state'>): Partial<Amounts> =>
  state === 'taken' ? {} : { storage_gb: size_gb, ...(kind === 'data' ? { volumes: 1 } : {}) };
