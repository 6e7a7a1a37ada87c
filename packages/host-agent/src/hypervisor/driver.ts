// The interface between the rest of the agent and a hypervisor: start or restore a VM, find VMs that outlived an
// earlier agent, talk to the guest, end the VM. QEMU implements it; tests use a fake to force faults.
import { randomBytes } from 'node:crypto';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import type { Guest } from '../guest/guest.ts';
import type { ProcessInfo } from './process.ts';
import type { ResumeChoice, ResumeNeeds } from './resume-needs.ts';

/** Everything needed to start a VM. Paths are absolute. */
export type VmSpec = {
  vmId: string;
  vcpus: number;
  memoryMb: number;
  /**
   * `diskPath`: the VM's own qcow2 overlay, the only one of these files that it writes. `imagePath`: the raw image at
   * the bottom. `layerPaths`: read-only qcow2 layers between image and disk, bottom first.
   */
  diskPath: string;
  imagePath: string;
  layerPaths: readonly string[];
  /** The VM's working directory, which the hypervisor creates. */
  runDir: string;
  nic: Nic;
  start: ColdBoot | Restore;
};

/**
 * Boots a kernel. With `memoryPath`, the guest's memory is that file and remains when the VM has ended. With `isBare`,
 * the guest mounts its root disk only with its identity, and keeps nothing of the disk in memory until then.
 */
export type ColdBoot = {
  kind: 'boot';
  kernelPath: string;
  initramfsPath: string;
  memoryPath?: string;
  isBare?: boolean;
};

/** Continues a VM from its saved state. */
export type Restore = {
  kind: 'restore';
  /** File with the device state, which `Vm.saveDevices` or a `MemorySave` wrote. */
  statePath: string;
  /** Descriptor of the memory file. VMs map it copy-on-write, so none of them can change it. */
  memoryFd: number;
  /**
   * Set while the memory file is still being filled. The guest does not run before this promise resolves. If it
   * rejects, the launch throws the same error.
   */
  memoryReady?: Promise<unknown>;
  /** Aborts the launch while the state is being loaded. */
  abort?: AbortSignal;
  /** The QEMU program to use, one of {@link Hypervisor.resumeChoices}. Undefined: the usual program. */
  qemuPath?: string;
  /** If true, the launch does not load the saved state. {@link Vm.begin} loads it later. */
  waits?: true;
  /** Names the template or memory snapshot that the memory comes from. Recorded so that a restarted agent knows it. */
  templateKey: string;
};

/** The VM's network device: a tap that exists already, or QEMU's unprivileged user networking. */
export type Nic =
  | { kind: 'tap'; mac: string; tapName: string }
  | { kind: 'user'; mac: string; subnet: string; gateway: string; nameServer: string };

/**
 * A file of the agent that becomes a SCSI disk of the guest; the VM's uid then owns it. `serial`: 36 characters at
 * most.
 */
export type PluggedFile = { slot: number; serial: string; file: string };

/** Where {@link MemorySave} creates its two files; absolute paths. `bytes`: size of the guest's memory. */
export type MemoryPlace = { memoryPath: string; statePath: string; bytes: number };

/**
 * A save of a VM's memory that has been prepared. The caller must call `complete` or `abandon`, also after an error of
 * another method, and removes the files unless `complete` succeeded.
 */
export interface MemorySave {
  /** Prepares pages that the guest began to use after {@link Vm.prepareMemory}. Call it right before {@link save}. */
  catchUp(): Promise<void>;
  /**
   * Saves memory and devices as they are at one moment. The VM is paused meanwhile, and `whileStopped` runs during that
   * pause. Resolves when the VM runs again. Throws what `whileStopped` throws, `conflict` when the VM cannot be saved,
   * and system errors.
   */
  save(whileStopped: () => Promise<void>): Promise<void>;
  /**
   * Writes both files and makes them durable. Returns a `SparseSum` of the memory. Throws system errors, for example a
   * full disk.
   */
  complete(): Promise<string>;
  /** Gives up the save and frees its resources. The caller removes the files. */
  abandon(): Promise<void>;
}

/** How a VM ended. The guest itself caused `powered-off` and `rebooted`. */
export type VmExit = { cause: 'powered-off' | 'rebooted' | 'died'; reason: string };

/** A VM whose process was started. */
export interface Vm {
  readonly vmId: string;
  readonly pid: number;
  readonly runDir: string;
  /** Names the template or memory snapshot that the VM was restored from; undefined after a cold boot. */
  readonly templateKey: string | undefined;
  /** Resolves once, when the VM ends by itself or because {@link end} was called. */
  readonly exited: Promise<VmExit>;
  /**
   * Loads the state of a VM that was launched with `waits`. Resolves when the guest runs. Throws when the state cannot
   * be loaded; the caller then ends the VM.
   */
  begin(): Promise<void>;
  /**
   * Opens a session with the guest agent, which closes the session before. Rejects when `signal` aborts or the VM ends.
   */
  connectGuest(signal: AbortSignal): Promise<Guest>;
  /** Returns the end of the guest's console output, at most 64 KiB, to explain a failure. */
  readConsole(): Promise<string>;
  /** Stops the vCPUs. {@link resume} lets them run again. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  isPaused(): Promise<boolean>;
  /**
   * Keeps the vCPUs stopped until {@link letGo}, even if {@link resume} is called meanwhile. Also stops a running
   * {@link flattenDisk}, so that nothing of the VM writes to its disks. Does nothing before {@link begin}.
   */
  hold(): Promise<void>;
  letGo(): Promise<void>;
  /** Enlarges the root disk of the running guest to `bytes`. The guest sees the new size at once. */
  growDisk(bytes: number): Promise<void>;
  /**
   * Opens an empty overlay, which {@link switchDisk} later puts on top of the disk. The VM's uid becomes the owner of
   * the file at `path`. `layerId`: the layer that the present disk becomes.
   */
  stageDisk(path: string, layerId: string): Promise<void>;
  /** Makes the guest write to the overlay that was staged for `layerId`. From then on its old disk is only read. */
  switchDisk(layerId: string): Promise<void>;
  /**
   * Whether the guest writes to the overlay staged for `layerId`. If an agent dies during a switch, the next agent asks
   * this.
   */
  isDiskSwitched(layerId: string): Promise<boolean>;
  /** Closes an overlay that was staged but is not in use. Does nothing when there is none. */
  unstageDisk(layerId: string): Promise<void>;
  /**
   * Copies the layers between the image and the disk into the disk file at `path`, at `bytesPerSec`. Continues a copy
   * that an earlier agent began. Resolves to true when the file depends on the image alone, durably, and to false when
   * {@link stopFlatten} ended the copy. Throws when the copy fails, for example on a full disk.
   */
  flattenDisk(path: string, bytesPerSec: number): Promise<boolean>;
  /** Cancels a copy, so that {@link flattenDisk} resolves. */
  stopFlatten(): Promise<void>;
  /**
   * Stops the vCPUs and writes the device state to a new file, for a VM whose memory is a file. Do not use the VM
   * afterwards. Throws QEMU's reason, and when the state is larger than 64 MiB.
   */
  saveDevices(path: string): Promise<void>;
  /**
   * Plugs a file into the running guest as a disk. A failure may leave the disk half plugged in: call
   * {@link unplugDisk} then, before anything else uses the file.
   */
  plugDisk(disk: PluggedFile): Promise<void>;
  /**
   * Removes the disk in that slot. Resolves when the VM has also closed its file. The guest should have unmounted the
   * disk before.
   */
  unplugDisk(slot: number): Promise<void>;
  /**
   * Serial numbers of the plugged disks, by slot. The serial of a half-plugged disk is empty; {@link unplugDisk}
   * removes such a disk.
   */
  pluggedDisks(): Promise<Map<number, string>>;
  /**
   * Begins to save the memory. Does as much as possible while the VM still runs, so that the later pause is short.
   * Throws `conflict` when the memory cannot be read, and system errors. After an error the caller removes the files.
   */
  prepareMemory(place: MemoryPlace): Promise<MemorySave>;
  /** What the saved memory of this VM will need of a host. The VM's QEMU may be older than the installed one. */
  resumeNeeds(): Promise<ResumeNeeds>;
  /** Renames the run directory, for example when a machine claims a pooled clone. */
  moveTo(runDir: string): void;
  /** Gives the VM a low priority for CPU and disk on the host, or the normal one. */
  setBackground(isBackground: boolean): void;
  /**
   * Ends the VM's process. QEMU flushes its disks first if it still answers. Resolves when everything of the VM is gone
   * except its files.
   */
  end(): Promise<void>;
}

/**
 * What the host has for this data directory: QEMU processes in its run directories, and the VM ids that have control
 * groups or records.
 */
export type HypervisorInventory = {
  processes: ProcessInfo[];
  cgroups: string[];
  records: string[];
};

export interface Hypervisor {
  readonly isolation: Isolation;
  /** Identifies what a template depends on besides its image: QEMU's build, the processor, our arguments for QEMU. */
  readonly fingerprint: string;
  /** The QEMU programs with which this host can resume saved memory at present, the usual program first. */
  resumeChoices(): Promise<ResumeChoice[]>;
  /**
   * Reserves the uid under which the VM will run; only this uid may open the VM's tap. Undefined when VMs run as the
   * agent's own account. The uid is freed when the VM ends or its launch fails.
   */
  reserveUid(vmId: string): number | undefined;
  /**
   * Starts a VM. Its disk and network must exist. Throws `host_unavailable` when the VM cannot run, and
   * `fleet_capacity` on a full disk; nothing of the VM is left then.
   */
  launch(spec: VmSpec): Promise<Vm>;
  /**
   * Kills the processes of a VM that this agent does not manage, and removes its record. Does nothing when there are
   * none.
   */
  release(vmId: string): Promise<void>;
  /** Lists what the host has for this data directory now. */
  inventory(): HypervisorInventory;
  /** Takes over the VMs of this data directory that already run, and ends all its other QEMU processes. */
  adopt(): Promise<Vm[]>;
}

/** Returns a random id for a new VM: 12 hex characters, as many as fit into the name of its tap. */
export function newVmId(): string {
  return randomBytes(6).toString('hex');
}
