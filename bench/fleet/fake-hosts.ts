// A fleet of hosts that answer at once and do nothing. It takes the place of the clients of a replica.
import type { EnsureMachine, HostInfo, MachineReport } from '@sandbar/contract/host-api.ts';
import type { HostClient } from '@sandbar/control-plane/hosts/client.ts';
import type { Hosts } from '@sandbar/control-plane/hosts/hosts.ts';

const image: HostInfo['images'][number] = {
  ...{ stack: 'base', description: 'For the benchmark.', digest: `sha256:${'0'.repeat(64)}`, architecture: 'x86_64' },
  ...{ min_rootfs_gb: 2, default: true, created_at: '2026-01-01T00:00:00.000Z' },
};
const GIB = 1024;

/** What each host says about itself. A host with 1 TiB of memory takes all machines of a run that it may get. */
export const infoOf = (hostId: string): HostInfo => ({
  ...{ host_id: hostId, version: '0', boot_id: 'boot', isolation: 'kvm', network: 'bridge', subnet: '10.0.0.0/8' },
  ...{ cpus: 128, memory_mb: 1024 * GIB, images: [image, { ...image, stack: 'python' }, { ...image, stack: 'node' }] },
  disk: { total_mb: 100_000 * GIB, free_mb: 100_000 * GIB, reserve_mb: 2 * GIB },
  templates: [{ stack: 'base', vcpus: 1, memory_mb: 1024 }],
});

/** Returns the host ids of the fleet. The first one is the local host of every replica. */
export const hostIds = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `019b0000-0000-7000-8000-${String(index).padStart(12, '0')}`);

let addresses = 0;

function answer(id: string, { generation, desired, spec }: EnsureMachine): MachineReport {
  const number = addresses++;
  const leased = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
  return {
    ...{ machine_id: id, generation, status: desired, reason: null, isolation: 'kvm' },
    ...{ private_ip: spec.private_ip ?? leased, output_revision: null },
  };
}

/** The calls that a create and the start of a replica make. Any other call fails. */
export function createFakeClient(hostId: string): HostClient {
  const calls: Partial<HostClient> = {
    info: async () => infoOf(hostId),
    listMachines: async () => [],
    listVolumes: async () => [],
    listSnapshots: async () => [],
    ensureMachine: async (id, wanted) => answer(id, wanted),
    deleteMachine: async () => undefined,
    events: async function* (signal) {
      yield { type: 'synced' as const };
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    },
    close: () => undefined,
  };
  return calls as HostClient;
}

/** Returns a copy of `hosts` in which every host is reachable and `client` answers for each of them. */
export const createFakeHosts = (hosts: Hosts, ids: readonly string[], client: HostClient): Hosts => ({
  ...hosts,
  client: () => client,
  reachableIds: () => ids,
  operableIds: () => ids,
  isOperable: () => true,
});
