// Reads the host agent's configuration from its environment and checks it, once at start.
import { isIP } from 'node:net';
import { availableParallelism, totalmem } from 'node:os';
import { isAbsolute } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec.ts';
import { defaultCache, defaultHome } from '@sandbar/contract/home.ts';
import { type HostAddress, parseHostAddress } from './fleet/host-address.ts';
import type { KeptLimits } from './jobs/kept-output.ts';
import type { MetricsAddress } from './metrics/metrics-server.ts';
import { parseRanges } from './network/subnet.ts';

/**
 * Default of `bootPatienceMs`: how long the guest agent may be silent in a cold boot. Under emulation a boot takes 1.5
 * to 3 s.
 */
export const BOOT_PATIENCE_MS = 8_000;

/**
 * Default for the number of connections of one machine that the host tracks: a 64th of the kernel's usual table of
 * 262,144 entries. The kernel keeps the entry of a closed TCP connection for two minutes, so a machine can still open
 * 34 short connections a second.
 */
const NETWORK_CONNECTIONS = 4096;
/** Memory of the host in MiB that is left to the operating system, the database and the service. */
const RESERVE_MB = 1024;

export type AcceleratorChoice = 'auto' | 'kvm' | 'tcg';

export type KvmChoices = {
  /** The processor that guests see: `host`, or the name of one of QEMU's models. */
  cpuModel: string;
  /**
   * `auto`: QEMU serves the root disk in a separate thread, and with io_uring if it can. `plain`: neither, as with
   * emulation.
   */
  diskIo: 'auto' | 'plain';
  /** Whether the host's kernel moves the packets of machines (vhost-net) instead of QEMU. */
  vhostNet: boolean;
};

export type HostAgentConfig = {
  home: string;
  cacheDir: string;
  /** Whether the agent may make taps, a bridge and NAT. Otherwise machines use QEMU's user networking. */
  isRoot: boolean;
  /** Group that may open the agent's socket, in addition to its owner. */
  serviceGid: number | undefined;
  /** Where a joined host listens for the control plane. Undefined: where it was told when it joined. */
  agentListen: HostAddress | undefined;
  accelerator: AcceleratorChoice;
  qemuPath: string;
  /** Absolute paths of older QEMU programs, for memory snapshots that `qemuPath` cannot resume. */
  oldQemuPaths: readonly string[];
  /** Settings for KVM, which emulation ignores. */
  kvm: KvmChoices;
  /** Whether the kernel may use huge pages for VMs. Undefined: with KVM only. */
  hugePages: boolean | undefined;
  /** CIDR range for machines. Undefined: the agent chooses a range at its first start and keeps it. */
  subnet: string | undefined;
  /** Name servers for machines. Undefined: the host's. */
  nameServers: readonly string[] | undefined;
  /** CIDR ranges that machines may reach although they are private. */
  networkAllow: readonly string[];
  /** Megabits per second that each machine may send, and also receive; undefined: no limit. */
  networkRateMbit: number | undefined;
  /** How many network connections of one machine the host tracks at once. */
  networkConnections: number;
  /**
   * Host memory in MiB that all VMs together may use, with QEMU and the page cache of their disks. When the VMs need
   * more, the kernel kills the largest VM and no other process. Default: the host's memory minus 1 GiB and the limits
   * for templates and loaded snapshots, but at least half of the host's memory.
   */
  machinesMemoryMb: number;
  /**
   * Megabytes and requests per second that each machine may read from the host's disk, and also write; undefined: no
   * limit. The data directory must be on a single disk. With cgroup version 1 the kernel limits only writes that the
   * guest waits for (fsync). Independently of this, machines share a busy disk by weight if its I/O scheduler supports
   * weights (bfq, or iocost with cgroup version 2).
   */
  diskRateMb: number | undefined;
  diskIops: number | undefined;
  /** Bytes of output kept for each stream of a job. */
  outputLimitBytes: number;
  /** How much output of ended jobs the host keeps for each machine. */
  keptOutput: KeptLimits;
  /** MiB of the data directory's file system that guests cannot use. Undefined: 5 %, and at least 2 GiB. */
  diskReserveMb: number | undefined;
  /** How many VMs boot or are restored in parallel. With one per CPU core, all VMs are ready soonest. */
  concurrentBoots: number;
  /**
   * How long the guest agent may be silent in a cold boot before the boot is retried, in ms. Other time limits of a
   * start scale with this value.
   */
  bootPatienceMs: number;
  /** Whether machines are cloned from templates. Otherwise each machine boots cold. */
  templates: boolean;
  /** Limits in MiB for the host memory and the disk space of templates. */
  templateMemoryMb: number;
  templateDiskMb: number;
  /** Limit in MiB for the host memory in which the memory of snapshots stays loaded for later machines. */
  snapshotMemoryMb: number;
  /** The address of the metrics; undefined: only the host API has them. */
  metricsListen: MetricsAddress | undefined;
  /** Largest number of pooled clones of one shape; 0 turns the pool off. */
  poolSize: number;
  /** Limit in MiB for the host memory of all pooled clones. */
  poolMemoryMb: number;
};

/** Reads the configuration. Throws `validation_error` with the variable's name and its allowed values. */
export function readConfig(env: NodeJS.ProcessEnv, uid: number): HostAgentConfig {
  const isRoot = uid === 0;
  const templateMemoryMb = integer(env, 'SANDBAR_TEMPLATE_MEMORY_MB', Math.max(512, shareOfMemoryMb(16)), 1);
  const snapshotMemoryMb = integer(env, 'SANDBAR_SNAPSHOT_MEMORY_MB', Math.max(512, shareOfMemoryMb(16)), 0);
  const restMb = shareOfMemoryMb(1) - RESERVE_MB - templateMemoryMb - snapshotMemoryMb;
  return {
    home: defaultHome(env, isRoot),
    cacheDir: defaultCache(env, isRoot),
    isRoot,
    serviceGid: env.SANDBAR_SERVICE_GID ? integer(env, 'SANDBAR_SERVICE_GID', 0, 0) : undefined,
    agentListen: address(env, 'SANDBAR_AGENT_LISTEN'),
    accelerator: choice(env, 'SANDBAR_ACCELERATOR', ['auto', 'kvm', 'tcg'] as const, 'auto'),
    qemuPath: env.SANDBAR_QEMU || 'qemu-system-x86_64',
    oldQemuPaths: paths(env, 'SANDBAR_OLD_QEMU'),
    kvm: {
      cpuModel: cpuModel(env.SANDBAR_CPU_MODEL || 'host'),
      diskIo: choice(env, 'SANDBAR_DISK_IO', ['auto', 'plain'] as const, 'auto'),
      vhostNet: integer(env, 'SANDBAR_VHOST_NET', 0, 0) > 0,
    },
    hugePages: env.SANDBAR_HUGE_PAGES ? integer(env, 'SANDBAR_HUGE_PAGES', 0, 0) > 0 : undefined,
    subnet: env.SANDBAR_SUBNET || undefined,
    nameServers: env.SANDBAR_NAME_SERVERS ? addresses(env.SANDBAR_NAME_SERVERS) : undefined,
    networkAllow: parseRanges(env.SANDBAR_NETWORK_ALLOW ?? ''),
    networkRateMbit: env.SANDBAR_NETWORK_RATE_MBIT ? integer(env, 'SANDBAR_NETWORK_RATE_MBIT', 1, 1) : undefined,
    networkConnections: integer(env, 'SANDBAR_NETWORK_CONNECTIONS', NETWORK_CONNECTIONS, 64),
    machinesMemoryMb: integer(env, 'SANDBAR_MACHINES_MEMORY_MB', Math.max(restMb, shareOfMemoryMb(2)), 128),
    diskRateMb: env.SANDBAR_DISK_RATE_MB ? integer(env, 'SANDBAR_DISK_RATE_MB', 1, 1) : undefined,
    diskIops: env.SANDBAR_DISK_IOPS ? integer(env, 'SANDBAR_DISK_IOPS', 1, 1) : undefined,
    outputLimitBytes: integer(env, 'SANDBAR_OUTPUT_LIMIT_BYTES', EXEC_BOUNDS.outputBytesDefault, 1),
    keptOutput: {
      bytes: integer(env, 'SANDBAR_KEPT_OUTPUT_BYTES', EXEC_BOUNDS.keptBytesDefault, 0),
      jobs: integer(env, 'SANDBAR_KEPT_OUTPUT_JOBS', EXEC_BOUNDS.keptJobsDefault, 1),
    },
    diskReserveMb: env.SANDBAR_DISK_RESERVE_MB ? integer(env, 'SANDBAR_DISK_RESERVE_MB', 0, 0) : undefined,
    concurrentBoots: integer(env, 'SANDBAR_CONCURRENT_BOOTS', availableParallelism(), 1),
    bootPatienceMs: integer(env, 'SANDBAR_BOOT_PATIENCE_MS', BOOT_PATIENCE_MS, 100),
    templates: integer(env, 'SANDBAR_TEMPLATES', 1, 0) > 0,
    templateMemoryMb,
    templateDiskMb: integer(env, 'SANDBAR_TEMPLATE_DISK_MB', 4096, 1),
    snapshotMemoryMb,
    metricsListen: address(env, 'SANDBAR_AGENT_METRICS_LISTEN'),
    poolSize: integer(env, 'SANDBAR_POOL_SIZE', 8, 0),
    poolMemoryMb: integer(env, 'SANDBAR_POOL_MEMORY_MB', Math.max(256, shareOfMemoryMb(32)), 0),
  };
}

function shareOfMemoryMb(parts: number): number {
  return Math.floor(totalmem() / 1024 / 1024 / parts);
}

function integer(env: NodeJS.ProcessEnv, name: string, fallback: number, minimum: number): number {
  const text = env[name];
  if (text === undefined || text === '') return fallback;
  const value = Number(text);
  if (Number.isInteger(value) && value >= minimum) return value;
  throw new ServiceError('validation_error', `${name} must be an integer of at least ${minimum}, not "${text}"`);
}

/** The name becomes a part of an argument of QEMU, so it must not contain a comma. */
function cpuModel(name: string): string {
  if (/^[A-Za-z0-9_.-]+$/.test(name)) return name;
  throw new ServiceError(
    'validation_error',
    `SANDBAR_CPU_MODEL must be "host" or a name that "qemu-system-x86_64 -cpu help" lists, not "${name}"`,
  );
}

function paths(env: NodeJS.ProcessEnv, name: string): string[] {
  const list = (env[name] ?? '').split(':').filter(Boolean);
  if (list.every(isAbsolute)) return list;
  throw new ServiceError('validation_error', `${name} must be absolute paths with colons between them`);
}

function address(env: NodeJS.ProcessEnv, name: string): HostAddress | undefined {
  const text = env[name];
  if (!text) return undefined;
  const found = parseHostAddress(text);
  if (found !== undefined) return found;
  throw new ServiceError('validation_error', `${name} must be HOST:PORT, such as 0.0.0.0:7072, not "${text}"`);
}

function addresses(text: string): string[] {
  return text.split(',').map((entry) => {
    const address = entry.trim();
    if (isIP(address) !== 0) return address;
    throw new ServiceError('validation_error', `SANDBAR_NAME_SERVERS must be a list of IP addresses, not "${text}"`);
  });
}

function choice<const T extends readonly string[]>(
  env: NodeJS.ProcessEnv,
  name: string,
  values: T,
  fallback: T[number],
): T[number] {
  const text = env[name] || fallback;
  const found = values.find((value) => value === text);
  if (found !== undefined) return found;
  throw new ServiceError('validation_error', `${name} must be one of ${values.join(', ')}, not "${text}"`);
}
