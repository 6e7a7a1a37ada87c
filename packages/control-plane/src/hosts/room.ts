// How much memory, processors and disk space a host has, and how much of them it may reserve for machines and volumes.
// Pure functions. The conditional UPDATE in store.ts has the same arithmetic in SQL.
import type { HostRow } from '../db/tables.ts';

/** What a host reserves for a machine or volume. In a change of a reservation, a negative number releases room. */
export type Room = { memoryMb: number; vcpus: number; diskGb: number };
export const NO_ROOM: Room = { memoryMb: 0, vcpus: 0, diskGb: 0 };

/**
 * The factors by which all machines of a host together may reserve more than the host has, because machines seldom use
 * everything that is reserved for them. A single machine must fit into the host without these factors.
 */
export type Overcommit = { memory: number; vcpus: number; disk: number };

export type HostSize = Pick<HostRow, 'memory_mb' | 'cpus' | 'disk_mb' | 'disk_reserve_mb'>;
export type HostRoom = HostSize &
  Pick<HostRow, 'disk_free_mb' | 'reserved_memory_mb' | 'reserved_vcpus' | 'reserved_disk_gb'>;

/**
 * The largest machine that would fit into the empty host. Its disk may be larger than that of the host, because a disk
 * takes only the space that its guest has written. The disk reserve is for the service and does not count.
 */
export function capacityOf(host: HostSize, overcommit: Overcommit): Room {
  const diskGb = Math.floor((Math.max(0, host.disk_mb - host.disk_reserve_mb) / 1024) * overcommit.disk);
  return { memoryMb: host.memory_mb, vcpus: host.cpus, diskGb };
}

/** Says in a refusal what bounds the size of a single disk. */
export const offeredDisk = ({ disk }: Overcommit): string =>
  `${disk} times the disk of the largest host of this service`;

/** What the host may still reserve. A number is negative if the factors or the host became smaller. */
export function unpromised(host: HostRoom, overcommit: Overcommit): Room {
  const { memoryMb, vcpus, diskGb } = capacityOf(host, overcommit);
  return {
    memoryMb: memoryMb * overcommit.memory - host.reserved_memory_mb,
    vcpus: vcpus * overcommit.vcpus - host.reserved_vcpus,
    diskGb: diskGb - host.reserved_disk_gb,
  };
}

/**
 * Whether the host can take a machine or a volume of this size now. A host whose free disk space is down to the reserve
 * takes no new disk, even if most of its disk is unreserved.
 */
export function hasRoomFor(host: HostRoom, { memoryMb, vcpus, diskGb }: Room, overcommit: Overcommit): boolean {
  const most = capacityOf(host, overcommit);
  const left = unpromised(host, overcommit);
  const isDiskShort = host.disk_free_mb <= host.disk_reserve_mb;
  return (
    memoryMb <= Math.min(most.memoryMb, left.memoryMb) &&
    vcpus <= Math.min(most.vcpus, left.vcpus) &&
    diskGb <= Math.min(most.diskGb, left.diskGb) &&
    (diskGb === 0 || !isDiskShort)
  );
}

export const addRoom = (a: Room, b: Room, sign: 1 | -1 = 1): Room => ({
  memoryMb: a.memoryMb + sign * b.memoryMb,
  vcpus: a.vcpus + sign * b.vcpus,
  diskGb: a.diskGb + sign * b.diskGb,
});
