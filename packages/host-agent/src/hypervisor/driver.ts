// What the rest of the agent knows of a hypervisor: start a VM or restore one, find the ones that outlived the agent, talk
// to the guest, end it. QEMU is the real one; tests put a fake in its place to force faults.
import { randomBytes } from 'node:crypto';
import type { Isolation } from '@sandbar/contract/machine.ts';
import type { Guest } from '../guest/guest.ts';
import type { ProcessInfo } from './process.ts';

/** Everything a VM is started with. Paths are absolute. */
export type VmSpec = {
  vmId: string;
  vcpus: number;
  memoryMb: number;
  /** The VM's own qcow2, and what is below it, which is only read: the raw image and, bottom to top, layers on it. */
  diskPath: string;
  imagePath: string;
  layerPaths: readonly string[];
  /** Made by the hypervisor; the VM's working directory. */
  runDir: string;
  nic: Nic;
  start: ColdBoot | Restore;
};

/** A boot from the kernel. `memoryPath`: the guest's memory is that file, so that it is there when the VM has ended. */
export type ColdBoot = { kind: 'boot'; kernelPath: string; initramfsPath: string; memoryPath?: string };

/** A VM goes on where another one was saved. */
export type Restore = {
  kind: 'restore';
  channelToken: string;
  /** Device state, as `Vm.saveDevices` (a migration) or `Vm.saveMemory` (devices) wrote it. */
  statePath: string;
  stateFormat: 'migration' | 'devices';
  /** Descriptor of the memory, which no clone can write: each has its own copy of what it changes. */
  memoryFd: number;
  /** The memory is still being written: the guest must not run before. A launch throws what it rejects with. */
  memoryReady?: Promise<unknown>;
  /** Ends the launch while the state is loaded. */
  abort?: AbortSignal;
  /** Kept with the VM, for an agent that finds it again: the template, or what else the memory is of. */
  templateKey: string;
};

/** The network side of a VM: a tap that exists already, or QEMU's unprivileged user networking. */
export type Nic =
  | { kind: 'tap'; mac: string; tapName: string }
  | { kind: 'user'; mac: string; subnet: string; gateway: string; nameServer: string };

/** A file of the agent's own that becomes the VM's and a SCSI disk of its guest. `serial`: 36 characters at most. */
export type PluggedFile = { slot: number; serial: string; file: string };

/** Files that are made; absolute paths. `bytes`: of the guest's memory. */
export type MemoryPlace = { memoryPath: string; statePath: string; bytes: number };

/** One of the two has to be called. */
export interface SavedMemory {
  /** Adds what the VM shares with others and makes the files durable. Throws the system's errors. */
  complete(): Promise<void>;
  /** The files are of no use. */
  abandon(): Promise<void>;
}

/** How a VM came to its end. `powered-off` and `rebooted` are the guest's own doing. */
export type VmExit = { cause: 'powered-off' | 'rebooted' | 'died'; reason: string };

/** A VM with a process. */
export interface Vm {
  readonly vmId: string;
  readonly pid: number;
  readonly runDir: string;
  /** What opens a session with its guest agent, 64 hex digits. */
  readonly channelToken: string;
  /** The template that it was restored from. */
  readonly templateKey: string | undefined;
  /** Settles once, when the VM has come to an end that nobody here asked for, or was ended. */
  readonly exited: Promise<VmExit>;
  /** Opens a session with the guest agent; a new one ends the one before. Rejects when `signal` aborts or the VM ends. */
  connectGuest(signal: AbortSignal): Promise<Guest>;
  /** The last lines that the guest printed on its console, for a reason that helps. */
  readConsole(): Promise<string>;
  /** Holds the vCPUs, and lets them go on. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  isPaused(): Promise<boolean>;
  /** Makes the disk larger under the running guest, which is told; bytes. */
  growDisk(bytes: number): Promise<void>;
  /** Opens an empty overlay, a file of the agent's own that becomes the VM's, to go on top of its disk. */
  stageDisk(path: string, layerId: string): Promise<void>;
  /** The guest writes to the overlay that was staged for that layer from here on, and its disk is only read. */
  switchDisk(layerId: string): Promise<void>;
  /** Whether it does; to be asked of a VM whose agent died over it. */
  isDiskSwitched(layerId: string): Promise<boolean>;
  /** Closes an overlay that was staged and not switched to; nothing to close is no failure. */
  unstageDisk(layerId: string): Promise<void>;
  /**
   * Copies the layers between image and disk, the file at `path`, into the disk, at so many bytes a second. True when the file
   * stands on the image alone, whatever becomes of the VM; false when it was told to stop. Goes on with what an earlier agent
   * began. Throws when it cannot.
   */
  flattenDisk(path: string, bytesPerSec: number): Promise<boolean>;
  /** Tells a copy to end: {@link flattenDisk} resolves then. */
  stopFlatten(): Promise<void>;
  /** Writes the state of the devices to a file, for a VM whose memory is a file; the VM is of no use afterwards. */
  saveDevices(path: string): Promise<void>;
  /**
   * Makes a file a disk of the running guest. When it fails, part of it may be done: {@link unplugDisk} undoes it, and only then
   * is the file nobody's.
   */
  plugDisk(disk: PluggedFile): Promise<void>;
  /** Resolves when the VM has neither the disk of that slot nor its file; the guest should not use it any more. */
  unplugDisk(slot: number): Promise<void>;
  /** Serials of the disks that were plugged in, by slot; empty for half a disk, which {@link unplugDisk} takes out. */
  pluggedDisks(): Promise<Map<number, string>>;
  /**
   * Saves memory and devices as they are in one moment; resolves when the VM runs again. It stands still while the pages are
   * copied that it does not share with others; `whileStopped` runs last in that pause. Throws what that throws, `conflict`
   * when the VM cannot be saved, and the system's errors (a full disk). The files are the caller's to remove then.
   */
  saveMemory(place: MemoryPlace, whileStopped: () => Promise<void>): Promise<SavedMemory>;
  /** Renames the run directory. */
  moveTo(runDir: string): void;
  /** Low priority on the host's processors, or the usual one. */
  setBackground(isBackground: boolean): void;
  /** Ends the VM's process, flushing its disks when it still listens; resolves when nothing of it is left but its files. */
  end(): Promise<void>;
}

/** `processes`: QEMUs in our run directories; the others by VM id. */
export type HypervisorInventory = {
  processes: ProcessInfo[];
  cgroups: string[];
  records: string[];
};

export interface Hypervisor {
  readonly isolation: Isolation;
  /** What a template depends on besides its image: the hypervisor's build, the processor, our own arguments. */
  readonly fingerprint: string;
  /** What saved memory depends on: only the same QEMU on the same processor can go on with it. */
  readonly resumeFingerprint: string;
  /** The uid that the VM will have, for its tap; undefined: the agent's own. Given back when the VM ends or its launch fails. */
  reserveUid(vmId: string): number | undefined;
  /** Starts a VM whose disk and network exist. Throws `host_unavailable` when it cannot run; nothing is left then. */
  launch(spec: VmSpec): Promise<Vm>;
  /** Ends what runs of a VM that nobody knows, and forgets it. Does nothing when there is nothing. */
  release(vmId: string): Promise<void>;
  /** What the host has of this data directory, as the kernel tells it. */
  inventory(): HypervisorInventory;
  /** VMs of this data directory that run already; whatever else of it runs is ended. */
  adopt(): Promise<Vm[]>;
}

/** An id for a new VM: 12 hexadecimal characters, which is what the name of a tap leaves. */
export function newVmId(): string {
  return randomBytes(6).toString('hex');
}
