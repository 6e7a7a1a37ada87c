// The settings of control groups, as pure functions: which file gets which value, in version 1 and 2.
import { availableParallelism } from 'node:os';
import type { VmLimits } from './jail.ts';

export type Version = 1 | 2;

/** The controllers in use, each with the sentence that reports its absence. */
export const CONTROLLERS = {
  cpu: 'The CPU of a VM is not limited',
  memory: 'The memory of a VM is not limited on the host',
  pids: 'The number of processes of a VM is not limited',
  io: 'The disk of the host is not shared fairly among VMs',
} as const;
export type Controller = keyof typeof CONTROLLERS;

/** What a host adds to the limits of each VM. */
export type HostLimits = {
  /** Bytes that all VMs together may use; undefined: no limit. */
  memoryBytes?: number | undefined;
  /** What each VM may read from the disk, and also write; undefined: no limit. */
  disk?: { bytesPerSec?: number | undefined; requestsPerSec?: number | undefined } | undefined;
};

/** One value in a file of a group. Not every kernel has every file; `isOptional` ones may be missing. */
export type Setting = { file: string; value: string; isOptional?: true };

/** The kernel's default period for CPU quotas, in microseconds. */
const PERIOD_US = 100_000;
/** CPU time for QEMU's own threads beside the vCPUs: devices, disk and network. In processors. */
const EXTRA_CPUS = 0.5;
/**
 * Memory in MiB that a VM may use beyond the guest's own. An emulated QEMU needs 64 for its translation cache, about 40
 * for heap and stacks, and 1/512 of the guest's memory for page tables. The rest serves bursts of requests and the page
 * cache of its disk, without which the VM gets very slow.
 */
const EXTRA_MEMORY_MB = 256;
/**
 * Threads of a VM besides its vCPUs. QEMU has up to 64 disk workers, as many again while it replaces them, and a few
 * other threads. bubblewrap is one more process.
 */
const EXTRA_TASKS = 160;
/** Weights of a VM, and of a VM in the background, which still makes progress but yields to every machine. */
const CPU_SHARES = { normal: 1024, background: 64 } as const;
/** The kernel's default weight for disk I/O is 100. */
const IO_WEIGHT = { normal: 100, background: 10 } as const;

/** Returns how many processes and threads a VM may have. */
export function maxTasks(vcpus: number): number {
  return vcpus + EXTRA_TASKS;
}

/** The limits of one VM. `device`: the disk that the data directory is on, as `major:minor`. */
export function vmSettings(
  version: Version,
  controller: Controller,
  limits: VmLimits,
  { disk }: HostLimits,
  device: string | undefined,
): Setting[] {
  if (controller === 'cpu') return cpuSettings(version, limits.vcpus);
  if (controller === 'pids') return [{ file: 'pids.max', value: String(maxTasks(limits.vcpus)) }];
  if (controller === 'memory') return memorySettings(version, limits.memoryMb + (limits.mappedMb ?? 0));
  return disk && device !== undefined ? diskSettings(version, device, disk) : [];
}

/** The weights of one VM. */
export function weightSettings(version: Version, controller: Controller, isBackground: boolean): Setting[] {
  const kind = isBackground ? 'background' : 'normal';
  if (controller === 'cpu') {
    // Version 2 has a default weight of 100 where version 1 has 1024.
    const weight = String(Math.round((CPU_SHARES[kind] * 100) / 1024));
    return [
      version === 1 ? { file: 'cpu.shares', value: String(CPU_SHARES[kind]) } : { file: 'cpu.weight', value: weight },
    ];
  }
  if (controller !== 'io') return [];
  // Only some I/O schedulers know weights, and each has a file of its own.
  const files = version === 1 ? ['blkio.weight', 'blkio.bfq.weight'] : ['io.weight', 'io.bfq.weight'];
  return files.map((file) => ({ file, value: String(IO_WEIGHT[kind]), isOptional: true }));
}

/**
 * The settings of the group of all VMs. In version 1 it gives all VMs together the CPU weight of one ordinary process
 * per core, so that the agent still gets CPU time when the VMs are busy.
 */
export function allVmsSettings(version: Version, controller: Controller, { memoryBytes }: HostLimits): Setting[] {
  if (controller === 'cpu' && version === 1)
    return [{ file: 'cpu.shares', value: String(1024 * availableParallelism()) }];
  if (controller !== 'memory' || memoryBytes === undefined) return [];
  return [{ file: version === 1 ? 'memory.limit_in_bytes' : 'memory.max', value: String(memoryBytes) }];
}

function cpuSettings(version: Version, vcpus: number): Setting[] {
  const quotaUs = String(Math.round((vcpus + EXTRA_CPUS) * PERIOD_US));
  if (version === 2) return [{ file: 'cpu.max', value: `${quotaUs} ${PERIOD_US}` }];
  return [
    { file: 'cpu.cfs_period_us', value: String(PERIOD_US) },
    { file: 'cpu.cfs_quota_us', value: quotaUs },
  ];
}

/**
 * Not every kernel has swap limits, so these settings are optional. VMs get no swap: a guest could wear out the host's
 * disk with it, and would become extremely slow.
 */
function memorySettings(version: Version, memoryMb: number): Setting[] {
  const bytes = String((memoryMb + EXTRA_MEMORY_MB) * 1024 * 1024);
  return version === 1
    ? [
        { file: 'memory.limit_in_bytes', value: bytes },
        { file: 'memory.memsw.limit_in_bytes', value: bytes, isOptional: true },
        { file: 'memory.swappiness', value: '0', isOptional: true },
      ]
    : [
        { file: 'memory.max', value: bytes },
        { file: 'memory.swap.max', value: '0', isOptional: true },
        { file: 'memory.oom.group', value: '1', isOptional: true },
      ];
}

function diskSettings(version: Version, device: string, disk: NonNullable<HostLimits['disk']>): Setting[] {
  const caps = [
    ['bps', disk.bytesPerSec],
    ['iops', disk.requestsPerSec],
  ] as const;
  const set = caps.flatMap(([unit, limit]) => (limit === undefined ? [] : [{ unit, limit }]));
  if (version === 2) {
    const value = set.map(({ unit, limit }) => `r${unit}=${limit} w${unit}=${limit}`).join(' ');
    return value === '' ? [] : [{ file: 'io.max', value: `${device} ${value}` }];
  }
  return set.flatMap(({ unit, limit }) =>
    ['read', 'write'].map((way) => ({ file: `blkio.throttle.${way}_${unit}_device`, value: `${device} ${limit}` })),
  );
}
