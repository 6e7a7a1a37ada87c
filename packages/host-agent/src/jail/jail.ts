// The interface of the jail around a VM's process: prepare it, find its processes, remove it. An agent with root uses
// RootJail (root-jail.ts). Without root there is no isolation (no-jail.ts), and `lacks` says so.

export type JailedProcess = {
  /** 12 lowercase hex characters. */
  vmId: string;
  /** The working directory; writable, and visible in the jail under its own absolute path. */
  runDir: string;
  /** Absolute path. */
  program: string;
  args: readonly string[];
  /**
   * Absolute paths of host files that the jail shows read-only, at the same path. Every account must be able to read
   * them.
   */
  readOnlyFiles: readonly string[];
  /**
   * Regular files outside the run directory. The VM's uid becomes their owner, and they are visible and writable under
   * the same path.
   */
  writableFiles?: readonly string[];
  /** Additional devices, such as /dev/kvm. /dev/null and /dev/urandom are always available. */
  devices: readonly string[];
  limits: VmLimits;
};

export type VmLimits = {
  vcpus: number;
  /** Memory of the guest in MiB. */
  memoryMb: number;
  /**
   * Size in MiB of the memory file that the guest's memory is a copy-on-write mapping of. When the guest first uses a
   * page that is a hole in the file, the kernel fills the hole too, and counts both the file's page and the guest's own
   * page as memory of this VM.
   */
  mappedMb?: number;
  /**
   * Largest size of any file the VM writes, in bytes. It also applies to a memfd or tmpfs file with the guest's memory.
   */
  fileBytes: number;
};

/** The command that starts a jailed process. Spawn it detached, in `/`, with an empty environment. */
export type JailCommand = { command: string; args: string[]; uid: number | undefined };

export interface Jail {
  /** Sentences about protection that this jail does not provide on this host. */
  readonly lacks: readonly string[];
  /**
   * Reserves the uid under which the VM will run, because its tap must be created for that uid. Undefined: VMs run
   * under the agent's own uid.
   */
  reserveUid(vmId: string): number | undefined;
  /**
   * Makes the run directory (owned by the VM's uid, mode 0700) and the cgroup, and returns the command. The command
   * inherits exactly the descriptors that the caller passes, under the same numbers. Throws when the run directory's
   * path contains a symlink or another account's folder, or when a device is missing. The caller then cleans up with
   * `release`.
   */
  prepare(vm: JailedProcess): Promise<JailCommand>;
  /** Registers the uid of a VM that an earlier agent started, so that no other VM gets it. */
  adopt(vmId: string, uid: number | undefined): void;
  /**
   * Returns the host pid of the jailed program. `spawnedPid` is the pid of the spawned command. Undefined before the
   * program runs and after it ended; once the program has answered anything, its pid is available.
   */
  programPid(vmId: string, spawnedPid: number): number | undefined;
  /** Host pids in the VM's cgroup: the program, the bubblewrap process that waits for it, and strays. */
  processesOf(vmId: string): number[];
  /**
   * Gives the VM low priority for CPU and disk while it is prepared in the background, and normal priority when a
   * machine uses it.
   */
  setBackground(vmId: string, isBackground: boolean): void;
  /** Counts processes of the VM that the kernel killed because the VM reached its memory limit. */
  memoryKillsOf(vmId: string): number;
  /** Kills all processes in the VM's cgroup, removes the cgroup and frees the uid. Does nothing when there are none. */
  release(vmId: string): Promise<void>;
  /** Returns the VM ids that have a cgroup in this data directory's group. */
  listVmIds(): string[];
  /** Removes the data directory's own cgroup and device nodes from the host. Call it only when no VM is left. */
  remove(): Promise<void>;
}

/** Throws unless the text is a VM id. VM ids become parts of paths of cgroups, so they are checked. */
export function checkVmId(vmId: string): void {
  if (!/^[0-9a-f]{12}$/.test(vmId)) throw new Error(`"${vmId}" is not a VM id`);
}
