// How large one machine of an account may be. The account's limits and the largest host bound it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { MACHINE_BOUNDS, MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import type { LargestMachine } from '@sandbar/contract/quota.ts';
import type { TierLimits } from '@sandbar/contract/tier-limits.ts';
import { oncePerList } from '../hosts/once-per-list.ts';
import { capacityOf, type HostSize, type Overcommit, offeredDisk } from '../hosts/room.ts';

/** `whose`: the end of the sentence that refuses a larger value. */
type Bound = { field: keyof LargestMachine; most: number; whose: string };

/** Returns the bounds of an account. They are checked before those of the hosts. */
export const accountBounds = (limits: TierLimits): Bound[] => [
  { field: 'vcpus', most: limits.vcpus_per_machine, whose: ' for this account' },
  { field: 'memory_mb', most: limits.memory_mb_per_machine, whose: ' for this account' },
];

/** Returns the bounds that the hosts set for every account. */
export function hostBounds(hosts: readonly HostSize[], overcommit: Overcommit): Bound[] {
  if (hosts.length === 0) return [];
  const { isDiskKnown, ...largest } = largestOf(hosts);
  const most = capacityOf(largest, overcommit);
  const ofHosts: Bound[] = [
    { field: 'vcpus', most: most.vcpus, whose: ', the cores of the largest host of this service' },
    { field: 'memory_mb', most: most.memoryMb, whose: ', the memory of the largest host of this service' },
  ];
  const disk: Bound = { field: 'rootfs_size_gb', most: most.diskGb, whose: `, ${offeredDisk(overcommit)}` };
  // After an update of the service, no host's disk size is known until its agent reports it. Then skip this check.
  return isDiskKnown ? [...ofHosts, disk] : ofHosts;
}

/** Returns the most memory, the most processors and the most disk space that any of the hosts has. */
const largestOf = oncePerList((hosts: readonly HostSize[]): HostSize & { isDiskKnown: boolean } => {
  const largest = { memory_mb: 0, cpus: 0, disk_mb: 0, disk_reserve_mb: 0, isDiskKnown: false };
  for (const { memory_mb, cpus, disk_mb, disk_reserve_mb } of hosts) {
    largest.memory_mb = Math.max(largest.memory_mb, memory_mb);
    largest.cpus = Math.max(largest.cpus, cpus);
    largest.disk_mb = Math.max(largest.disk_mb, disk_mb - disk_reserve_mb);
    largest.isDiskKnown ||= disk_mb !== 0;
  }
  return largest;
});

/**
 * Throws `validation_error` and not `quota_exceeded` for a machine that is too large, because neither waiting nor
 * freeing quota would help.
 */
export function checkSize(
  bounds: readonly Bound[],
  {
    vcpus = MACHINE_DEFAULTS.vcpus,
    memory_mb = MACHINE_DEFAULTS.memory_mb,
    rootfs_size_gb = 0,
  }: Partial<LargestMachine>,
): void {
  const size: LargestMachine = { vcpus, memory_mb, rootfs_size_gb };
  for (const { field, most, whose } of bounds) {
    if (size[field] > most) throw new ServiceError('validation_error', `${field} must be at most ${most}${whose}.`);
  }
}

/** Returns the smallest bound of each field, including the bounds that hold for every account. */
export function largestMachine(bounds: readonly Bound[]): LargestMachine {
  const least = (field: keyof LargestMachine, most: number) =>
    Math.min(most, ...bounds.filter((bound) => bound.field === field).map((bound) => bound.most));
  return {
    vcpus: least('vcpus', MACHINE_BOUNDS.vcpusMax),
    memory_mb: least('memory_mb', MACHINE_BOUNDS.memoryMbMax),
    rootfs_size_gb: least('rootfs_size_gb', MACHINE_BOUNDS.rootfsGbMax),
  };
}
