// What a row counts for, in the quota of its account and in the promised memory of its host. Pure rules.
import type { MachineState } from '@sandbar/contract/machine.ts';
import type { Amounts } from '@sandbar/contract/quota.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';

/** States in which a machine counts for no quota. A stopped machine counts. */
export const UNCOUNTED: readonly MachineState[] = ['error', 'destroyed'];
/** States in which a machine holds the memory that its host promised it. */
export const MEMORY_HOLDERS: readonly MachineState[] = ['provisioning', 'running'];

type Size = Pick<MachineRow, 'vcpus' | 'memory_mb' | 'rootfs_size_gb'>;

/** What a machine of this size uses while it counts. */
export function machineAmounts({ vcpus, memory_mb, rootfs_size_gb }: Size): Partial<Amounts> {
  return { machines: 1, vcpus, memory_mb, storage_gb: rootfs_size_gb };
}

export const machineUse = (row: Size & Pick<MachineRow, 'state'>): Partial<Amounts> =>
  UNCOUNTED.includes(row.state) ? {} : machineAmounts(row);

/** MiB that the host promised the machine. */
export const promisedMemory = ({ state, memory_mb }: Pick<MachineRow, 'state' | 'memory_mb'>): number =>
  MEMORY_HOLDERS.includes(state) ? memory_mb : 0;

/** What a volume uses. The machine that takes a root volume counts its bytes as its own root disk. */
export const volumeUse = ({ kind, size_gb, state }: Pick<VolumeRow, 'kind' | 'size_gb' | 'state'>): Partial<Amounts> =>
  state === 'taken' ? {} : { storage_gb: size_gb, ...(kind === 'data' ? { volumes: 1 } : {}) };
