// Manages the control groups of VMs. Each VM has one group, below a group of the data directory that lies directly
// under the root of each hierarchy. They are not below the agent's own group, because a service manager that stops the
// agent's group would end the machines too. Processes are only in the VMs' groups, which are leaves, as version 2
// requires.
import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { homeId } from '../network/names.ts';
import { diskOf } from './block-device.ts';
import {
  allVmsSettings,
  CONTROLLERS,
  type Controller,
  type HostLimits,
  type Setting,
  type Version,
  vmSettings,
  weightSettings,
} from './cgroup-settings.ts';
import type { VmLimits } from './jail.ts';

const ALL = Object.keys(CONTROLLERS) as Controller[];
/** The folder of a controller in version 1. */
const V1_FOLDERS = { cpu: 'cpu', memory: 'memory', pids: 'pids', io: 'blkio' } as const;
/** Killed processes end within milliseconds unless the kernel waits for a broken disk. */
const RELEASE_TIMEOUT_MS = 10_000;

export type CgroupOptions = {
  /** Where the hierarchies are mounted; /sys/fs/cgroup by default. */
  root?: string | undefined;
  limits?: HostLimits | undefined;
};

/**
 * Creates the data directory's group in every cgroup hierarchy that the host has, and limits what all VMs together use.
 * Does not throw when controllers are missing or a limit cannot be set; {@link Cgroups.lacks} lists them.
 */
export function openCgroups(home: string, { root = '/sys/fs/cgroup', limits = {} }: CgroupOptions = {}): Cgroups {
  const name = `sandbar-${homeId(home)}`;
  const isVersion1 = readIfThere(`${root}/cgroup.controllers`) === undefined;
  const { hierarchies, lacks } = isVersion1 ? findV1(root, name) : findV2(root, name);
  const device = limits.disk ? diskOf(home) : undefined;
  const version = isVersion1 ? 1 : 2;
  const more = [
    ...hierarchies.flatMap((hierarchy) => limitAll(version, hierarchy, limits)),
    ...(limits.disk && device === undefined
      ? ['The disk rate of a VM is not limited: the file system of the data directory is not on one disk.']
      : []),
  ];
  return new Cgroups({ version, hierarchies, lacks: [...lacks, ...more], limits, device });
}

type Found = { hierarchies: Hierarchy[]; lacks: string[] };

function findV1(root: string, name: string): Found {
  const folderOf = (controller: Controller) => `${root}/${V1_FOLDERS[controller]}`;
  const found = ALL.filter(
    (controller) =>
      readIfThere(`${folderOf(controller)}/cgroup.procs`) !== undefined &&
      tryTo(() => mkdirSync(`${folderOf(controller)}/${name}`, { recursive: true })) === undefined,
  );
  const why = (controller: Controller) =>
    `the cgroup controller "${V1_FOLDERS[controller]}" is not mounted, writable, at ${folderOf(controller)}.`;
  return {
    hierarchies: found.map((controller) => ({ controllers: [controller], path: `${folderOf(controller)}/${name}` })),
    lacks: lacksOf(found, why),
  };
}

function findV2(root: string, name: string): Found {
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
  return { hierarchies: found.length > 0 ? [{ controllers: found, path }] : [], lacks: lacksOf(found, why) };
}

/**
 * Limits what all VMs together use. Returns a sentence for each limit that cannot be set. VMs that an earlier agent
 * started may already use more memory than the limit allows. Version 1 refuses such a limit, and version 2 would kill
 * some VMs, so the limit is not set then.
 */
function limitAll(version: Version, { controllers, path }: Hierarchy, limits: HostLimits): string[] {
  return controllers.flatMap((controller) => {
    if (controller === 'memory' && anonymousBytes(path) > (limits.memoryBytes ?? Number.POSITIVE_INFINITY))
      return ['The memory of all VMs together is not limited: they use more than the limit. Stop some, then restart.'];
    const failure = tryTo(() => apply(path, allVmsSettings(version, controller, limits)));
    return failure === undefined ? [] : [`What all VMs together use of "${controller}" is not limited (${failure}).`];
  });
}

/** Returns the memory of a group's processes, without caches, in bytes. */
function anonymousBytes(group: string): number {
  return Number(/^(?:total_rss|anon) (\d+)$/m.exec(readIfThere(`${group}/memory.stat`) ?? '')?.[1] ?? 0);
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

type CgroupsState = {
  version: Version;
  hierarchies: readonly Hierarchy[];
  lacks: readonly string[];
  limits: HostLimits;
  device: string | undefined;
};

export class Cgroups {
  readonly version: Version;
  /** Sentences about limits that this host cannot enforce. */
  readonly lacks: readonly string[];
  readonly #hierarchies: readonly Hierarchy[];
  readonly #limits: HostLimits;
  readonly #device: string | undefined;

  constructor({ version, hierarchies, lacks, limits, device }: CgroupsState) {
    this.version = version;
    this.#hierarchies = hierarchies;
    this.lacks = lacks;
    this.#limits = limits;
    this.#device = device;
  }

  /**
   * Makes the VM's groups and sets their limits. Returns the groups' `cgroup.procs` files. A process joins the groups
   * by writing its pid into all these files.
   */
  create(vmId: string, limits: VmLimits): string[] {
    return this.#hierarchies.map(({ controllers, path }) => {
      mkdirSync(`${path}/${vmId}`, { recursive: true });
      const settings = (controller: Controller) => [
        ...vmSettings(this.version, controller, limits, this.#limits, this.#device),
        ...weightSettings(this.version, controller, false),
      ];
      apply(`${path}/${vmId}`, controllers.flatMap(settings));
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
   * Gives the VM low or normal weights for CPU and disk. Does nothing where the host lacks the controller or the VM has
   * no group.
   */
  setBackground(vmId: string, isBackground: boolean): void {
    for (const { controllers, path } of this.#hierarchies) {
      const settings = controllers.flatMap((controller) => weightSettings(this.version, controller, isBackground));
      const group = `${path}/${vmId}`;
      if (settings.length > 0 && readIfThere(`${group}/cgroup.procs`) !== undefined) apply(group, settings);
    }
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
    const deadline = performance.now() + RELEASE_TIMEOUT_MS;
    for (const group of this.#groupsOf(vmId)) {
      while (!removeGroup(group)) {
        if (performance.now() > deadline)
          throw new Error(`processes of VM ${vmId} do not end: ${this.processesOf(vmId)}`);
        for (const pid of this.processesOf(vmId)) kill(pid);
        await delay(2);
      }
    }
  }

  /** Removes the data directory's own groups. Throws when a VM still has a group in one of them. */
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
