// What a machine counts for. The one rule: it counts from the row's first moment until it is destroyed or in error.
import type { MachineState } from '@sandbar/contract/machine.ts';
import type { Amounts } from '@sandbar/contract/quota.ts';

type Size = { vcpus: number; memory_mb: number; rootfs_size_gb: number };

/** Whether a machine in this state is counted; a stopped one is. */
export const isCounted = (state: MachineState): boolean => state !== 'error' && state !== 'destroyed';

/** What a counted machine uses. */
export function machineAmounts({ vcpus, memory_mb, rootfs_size_gb }: Size): Partial<Amounts> {
  return { machines: 1, vcpus, memory_mb, storage_gb: rootfs_size_gb };
}
