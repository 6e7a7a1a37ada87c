// What the rest of the agent knows of the jail around a VM's process: prepare one, find what runs in it, end it. Root
// has the real one (root-jail.ts); an ordinary account has none (no-jail.ts) and says so.

export type JailedProcess = {
  /** 12 lowercase hex characters. */
  vmId: string;
  /** Writable, and its working directory, at its own absolute path. */
  runDir: string;
  /** Absolute path. */
  program: string;
  args: readonly string[];
  /** Absolute paths that are visible read-only, at their own place; they have to be readable for everyone. */
  readOnlyFiles: readonly string[];
  /** Regular files outside the run directory that become the VM's own and are visible writable, at their own place. */
  writableFiles?: readonly string[];
  /** Devices such as /dev/net/tun and /dev/kvm. /dev/null and /dev/urandom are always there. */
  devices: readonly string[];
  limits: VmLimits;
};

export type VmLimits = {
  vcpus: number;
  /** Memory of the guest, MiB. */
  memoryMb: number;
  /** No file may grow past this, bytes: also not a memfd or a tmpfs file that holds the guest's memory. */
  fileBytes: number;
};

/** To be spawned detached, in `/`, with an empty environment. */
export type JailCommand = { command: string; args: string[]; uid: number | undefined };

export interface Jail {
  /** What this kind of jail does not give on this host, as sentences for people. */
  readonly lacks: readonly string[];
  /** The uid the VM will run as, taken now because its tap is made for it; undefined: the agent's own. */
  reserveUid(vmId: string): number | undefined;
  /**
   * Makes the run directory (owned by the VM's uid, mode 0700), the cgroup and the command. Descriptors that the caller
   * passes to the command arrive at the same numbers, and no others. Throws when a symlink or somebody else's directory
   * is in the run directory's way, or a device does not exist; `release` then undoes what was done.
   */
  prepare(vm: JailedProcess): Promise<JailCommand>;
  /** A VM of an earlier agent: its uid is taken again. */
  adopt(vmId: string, uid: number | undefined): void;
  /**
   * The pid, on the host, of the jailed program; `spawnedPid` is that of the command. Undefined until it runs, and after
   * it ended. It runs as soon as anything was heard from it.
   */
  programPid(vmId: string, spawnedPid: number): number | undefined;
  /** Processes in the VM's cgroup (host pids): the program, the process that waits for it, and strays. */
  processesOf(vmId: string): number[];
  /** Low CPU priority while a VM is prepared in the background, normal again when a machine takes it. */
  setBackground(vmId: string, isBackground: boolean): void;
  /** Processes of the VM that the kernel killed because it reached its memory limit. */
  memoryKillsOf(vmId: string): number;
  /** Ends what is left in the VM's cgroup, removes it and gives the uid back. Does nothing when there is nothing. */
  release(vmId: string): Promise<void>;
  /** VM ids that have a cgroup here. */
  listVmIds(): string[];
  /** Takes away what the data directory has on the host when no VM is left: its group and its device nodes. */
  remove(): Promise<void>;
}

/** What every VM's cgroup, device folder and uid range is found by. Throws when it is not a VM id. */
export function checkVmId(vmId: string): void {
  if (!/^[0-9a-f]{12}$/.test(vmId)) throw new Error(`"${vmId}" is not a VM id`);
}
