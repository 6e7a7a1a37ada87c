// The metrics of each host: what it has, what is reserved on it, and its pool. Hosts are told apart by id and name,
// never by their address, which nobody outside of the service learns.
import { capacityOf, type Overcommit, unpromised } from '../hosts/room.ts';
import type { HostFacts } from './fleet-queries.ts';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
export const HOST_LABELS = ['host_id', 'host_name'] as const;
export const labelsOf = ({ id, name }: HostFacts) => ({ host_id: id, host_name: name });

export const HOST_STATES = ['active', 'cordoned', 'emptying', 'away'] as const;

/** `seenMs`: how long a host counts as reachable unseen. */
export function stateOf(host: HostFacts, seenMs: number): (typeof HOST_STATES)[number] {
  const { draining, emptying, away_since, report_age } = host;
  if (away_since !== null || report_age * 1000 > seenMs) return 'away';
  if (emptying) return 'emptying';
  return draining ? 'cordoned' : 'active';
}

type HostGauge = { name: string; help: string; value: (host: HostFacts, overcommit: Overcommit) => number };

export const HOST_GAUGES: readonly HostGauge[] = [
  {
    name: 'sandbar_host_vcpus_capacity',
    help: 'vCPUs that machines of the host may reserve together: its processors times SANDBAR_VCPU_OVERCOMMIT.',
    value: (host, overcommit) => host.cpus * overcommit.vcpus,
  },
  {
    name: 'sandbar_host_vcpus_reserved',
    help: 'vCPUs that are reserved for machines of the host.',
    value: (host) => host.reserved_vcpus,
  },
  {
    name: 'sandbar_host_vcpus_free',
    help: 'vCPUs of the host that can still be reserved; negative after its capacity has shrunk.',
    value: (host, overcommit) => unpromised(host, overcommit).vcpus,
  },
  {
    name: 'sandbar_host_memory_capacity_bytes',
    help: 'Memory that machines of the host may reserve together: its memory times SANDBAR_MEMORY_OVERCOMMIT.',
    value: (host, overcommit) => host.memory_mb * overcommit.memory * MIB,
  },
  {
    name: 'sandbar_host_memory_reserved_bytes',
    help: 'Memory that is reserved for machines of the host.',
    value: (host) => host.reserved_memory_mb * MIB,
  },
  {
    name: 'sandbar_host_memory_free_bytes',
    help: 'Memory of the host that can still be reserved; negative after its capacity has shrunk.',
    value: (host, overcommit) => unpromised(host, overcommit).memoryMb * MIB,
  },
  {
    name: 'sandbar_host_disk_capacity_bytes',
    help: 'Disk space that disks of the host may reserve together: its disk without the reserve, times SANDBAR_DISK_OVERCOMMIT.',
    value: (host, overcommit) => capacityOf(host, overcommit).diskGb * GIB,
  },
  {
    name: 'sandbar_host_disk_reserved_bytes',
    help: 'Disk space that is reserved for disks of machines and volumes of the host.',
    value: (host) => host.reserved_disk_gb * GIB,
  },
  {
    name: 'sandbar_host_disk_free_bytes',
    help: 'Disk space of the host that can still be reserved; negative after its capacity has shrunk.',
    value: (host, overcommit) => unpromised(host, overcommit).diskGb * GIB,
  },
  {
    name: 'sandbar_host_filesystem_size_bytes',
    help: 'Size of the file system with the disks of the host.',
    value: (host) => host.disk_mb * MIB,
  },
  {
    name: 'sandbar_host_filesystem_free_bytes',
    help: 'Bytes of that file system that nothing occupies.',
    value: (host) => host.disk_free_mb * MIB,
  },
  {
    name: 'sandbar_host_filesystem_reserve_bytes',
    help: 'Bytes of that file system that only the service may use: the host holds its guests when no more are free.',
    value: (host) => host.disk_reserve_mb * MIB,
  },
  {
    name: 'sandbar_host_pool_ready_clones',
    help: 'Clones that wait in the pool of the host.',
    value: (host) => host.pool_ready,
  },
  {
    name: 'sandbar_host_pool_target_clones',
    help: 'Clones that should wait in the pool of the host.',
    value: (host) => host.pool_target,
  },
  {
    name: 'sandbar_host_report_age_seconds',
    help: 'Time since a replica last heard from the agent of the host.',
    value: (host) => host.report_age,
  },
];
