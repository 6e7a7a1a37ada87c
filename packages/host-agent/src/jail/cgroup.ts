// Manages the control groups of VMs. Each VM has one group, below a group of the data directory that lies directly
// under the root of each hierarchy. They are not below the agent's own group, because a service manager that stops the
// agent's group would end the machines too. Processes are only in the VMs' groups, which are leaves, as version 2
// requires.
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { homeId } from '../network/names.ts';
import type { VmLimits } from './jail.ts';

/** The controllers in use, each with the sentence that reports its absence. */
const CONTROLLERS = {
  cpu: 'The CPU of a VM is not limited',
  memory: 'The memory of a VM is not limited on the host',
  pids: 'The number of processes of a VM is not limited',
} as const;
type Controller = keyof typeof CONTROLLERS;
const ALL = Object.keys(CONTROLLERS) as Controller[];

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
/** CPU weight of a background VM; a machine has 1024. The VM still makes progress but yields to every machine. */
const BACKGROUND_SHARES = 64;
/** Killed processes end within milliseconds unless the kernel waits for a broken disk. */
const RELEASE_TIMEOUT_MS = 10_000;

/** Returns how many processes and threads a VM may have. */
export function maxTasks(vcpus: number): number {
  return vcpus + EXTRA_TASKS;
}

type Setting = { file: string; value: string; isOptional?: true };

/**
 * Creates the data directory's group in every cgroup hierarchy that the host has below `root`. Does not throw when
 * controllers are missing; {@link Cgroups.lacks} lists them.
 */
export function openCgroups(home: string, root = '/sys/fs/cgroup'): Cgroups {
  const name = `sandbar-${homeId(home)}`;
  return readIfThere(`${root}/cgroup.controllers`) === undefined ? openV1(root, name) : openV2(root, name);
}

function openV1(root: string, name: string): Cgroups {
  const found = ALL.filter(
    (controller) =>
      readIfThere(`${root}/${controller}/cgroup.procs`) !== undefined &&
      tryTo(() => mkdirSync(`${root}/${controller}/${name}`, { recursive: true })) === undefined,
  );
  // Gives all VMs together the weight of one ordinary process per core, so that the agent still gets CPU time when they
  // are busy.
  if (found.includes('cpu')) {
    apply(`${root}/cpu/${name}`, [{ file: 'cpu.shares', value: String(1024 * availableParallelism()) }]);
  }
  const why = (controller: Controller) =>
    `the cgroup controller "${controller}" is not mounted, writable, at ${root}/${controller}.`;
  return new Cgroups(
    1,
    found.map((controller) => ({ controllers: [controller], path: `${root}/${controller}/${name}` })),
    lacksOf(found, why),
  );
}

function openV2(root: string, name: string): Cgroups {
  const path = `${root}/${name}`;
  const failures = new Map<Controller, string | undefined>();
  for (const controller of ALL) {
    const failure = tryTo(() => {
      mkdirSync(path, { recursive: true });
      for (const group of [root, path]) writeFileSync(`${group}/cgroup.subtree_control`, `+${controller}`);
    });
    failures.set(controller, failure);
  }
  const found = ALL.filter((controller) => failures.get(controller) === undefined);
  const why = (controller: Controller) =>
    `the cgroup controller "${controller}" cannot be used (${failures.get(controller)}).`;
  return new Cgroups(2, found.length > 0 ? [{ controllers: found, path }] : [], lacksOf(found, why));
}

/** Returns the error's message, or undefined on success. */
function tryTo(action: () => void): string | undefined {
  try {
    action();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

function lacksOf(found: readonly Controller[], why: (controller: Controller) => string): string[] {
  return ALL.filter((controller) => !found.includes(controller)).map(
    (controller) => `${CONTROLLERS[controller]}: ${why(controller)}`,
  );
}

/** A cgroup hierarchy; `path` is the data directory's group in it. */
type Hierarchy = { controllers: readonly Controller[]; path: string };

export class Cgroups {
  readonly version: 1 | 2;
  /** Sentences about limits that this host cannot enforce. */
  readonly lacks: readonly string[];
  readonly #hierarchies: readonly Hierarchy[];

  constructor(version: 1 | 2, hierarchies: readonly Hierarchy[], lacks: readonly string[]) {
    this.version = version;
    this.#hierarchies = hierarchies;
    this.lacks = lacks;
  }

  /**
   * Makes the VM's groups and sets their limits. Returns files: a process that writes its pid into all of them is in
   * the groups.
   */
  create(vmId: string, limits: VmLimits): string[] {
    return this.#hierarchies.map(({ controllers, path }) => {
      mkdirSync(`${path}/${vmId}`, { recursive: true });
      apply(
        `${path}/${vmId}`,
        controllers.flatMap((controller) => this.#settings(controller, limits)),
      );
      return `${path}/${vmId}/cgroup.procs`;
    });
  }

  processesOf(vmId: string): number[] {
    const pids = this.#groupsOf(vmId).flatMap(
      (group) => readIfThere(`${group}/cgroup.procs`)?.trim().split('\n') ?? [],
    );
    return [...new Set(pids.filter((pid) => pid !== '').map(Number))];
  }

  /**
   * Gives the VM a low or normal CPU weight. Does nothing when the host lacks the controller or the VM has no group.
   */
  setBackground(vmId: string, isBackground: boolean): void {
    const group = this.#groupWith('cpu', vmId);
    if (group === undefined || readIfThere(`${group}/cgroup.procs`) === undefined) return;
    // Version 2 has a default weight of 100 where version 1 has 1024.
    const setting =
      this.version === 1
        ? { file: 'cpu.shares', value: String(isBackground ? BACKGROUND_SHARES : 1024) }
        : { file: 'cpu.weight', value: String(isBackground ? Math.round((BACKGROUND_SHARES * 100) / 1024) : 100) };
    apply(group, [setting]);
  }

  /** Returns how many of the VM's processes the kernel killed because the VM reached its memory limit. */
  memoryKillsOf(vmId: string): number {
    const group = this.#groupWith('memory', vmId);
    const file = this.version === 1 ? 'memory.oom_control' : 'memory.events';
    const kills = group && readIfThere(`${group}/${file}`)?.match(/^oom_kill (\d+)$/m)?.[1];
    return Number(kills ?? 0);
  }

  /** Kills all processes in the VM's groups and removes the groups. Throws when a process does not end within 10 s. */
  async remove(vmId: string): Promise<void> {
    const deadline = Date.now() + RELEASE_TIMEOUT_MS;
    for (const group of this.#groupsOf(vmId)) {
      while (!removeGroup(group)) {
        if (Date.now() > deadline) throw new Error(`processes of VM ${vmId} do not end: ${this.processesOf(vmId)}`);
        for (const pid of this.processesOf(vmId)) kill(pid);
        await delay(2);
      }
    }
  }

  /** Removes the data directory's own groups. Throws when a VM is left in one. */
  removeAll(): void {
    for (const { path } of this.#hierarchies) {
      if (!removeGroup(path)) throw new Error(`${path} still has VMs in it`);
    }
  }

  listVmIds(): string[] {
    const names = this.#hierarchies.flatMap(({ path }) => readdirSync(path, { withFileTypes: true }));
    return [...new Set(names.filter((entry) => entry.isDirectory()).map((entry) => entry.name))];
  }

  #groupsOf(vmId: string): string[] {
    return this.#hierarchies.map(({ path }) => `${path}/${vmId}`);
  }

  #groupWith(controller: Controller, vmId: string): string | undefined {
    const hierarchy = this.#hierarchies.find(({ controllers }) => controllers.includes(controller));
    return hierarchy && `${hierarchy.path}/${vmId}`;
  }

  #settings(controller: Controller, limits: VmLimits): Setting[] {
    const isV1 = this.version === 1;
    if (controller === 'cpu') {
      const quotaUs = String(Math.round((limits.vcpus + EXTRA_CPUS) * PERIOD_US));
      return isV1
        ? [
            { file: 'cpu.cfs_period_us', value: String(PERIOD_US) },
            { file: 'cpu.cfs_quota_us', value: quotaUs },
          ]
        : [{ file: 'cpu.max', value: `${quotaUs} ${PERIOD_US}` }];
    }
    if (controller === 'pids') return [{ file: 'pids.max', value: String(maxTasks(limits.vcpus)) }];
    const bytes = String((limits.memoryMb + EXTRA_MEMORY_MB) * 1024 * 1024);
    // Not every kernel has swap limits, so these settings are optional. VMs get no swap: a guest could wear out the
    // host's disk with it, and would become extremely slow.
    return isV1
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
}

function apply(group: string, settings: readonly Setting[]): void {
  for (const { file, value, isOptional } of settings) {
    try {
      writeFileSync(`${group}/${file}`, value);
    } catch (error) {
      if (!isOptional) throw error;
    }
  }
}

/** Returns false when the group still contains processes, and true when it is removed or did not exist. */
function removeGroup(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return true;
    if (code === 'EBUSY') return false;
    throw error;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ENODEV: the group was removed while its file was open.
    if (code === 'ENOENT' || code === 'ENODEV') return undefined;
    throw error;
  }
}
