// What the rest of the agent knows of a hypervisor: start a VM, find the ones that outlived the agent, talk to the
// guest, end it. QEMU is the real one; tests put a fake in its place to force faults.
import type { Isolation } from '@sandbar/contract/machine.ts';
import type { Guest } from '../guest/guest.ts';

/** Everything a VM is started with. */
export type VmSpec = {
  machineId: string;
  vcpus: number;
  memoryMb: number;
  /** Absolute paths. */
  kernelPath: string;
  initramfsPath: string;
  diskPath: string;
  runDir: string;
  nic: Nic;
};

/** The network side of a VM: a tap that exists already, or QEMU's unprivileged user networking. */
export type Nic =
  | { kind: 'tap'; mac: string; tapName: string }
  | { kind: 'user'; mac: string; subnet: string; gateway: string; nameServer: string };

/** How a VM came to its end. `powered-off` and `rebooted` are the guest's own doing. */
export type VmExit = { cause: 'powered-off' | 'rebooted' | 'died'; reason: string };

/** A running VM. */
export interface Vm {
  readonly pid: number;
  /** Settles once, when the VM has come to an end that nobody here asked for, or was ended. */
  readonly exited: Promise<VmExit>;
  /** Opens a session with the guest agent; a new one ends the one before. Rejects when `signal` aborts or the VM ends. */
  connectGuest(signal: AbortSignal): Promise<Guest>;
  /** The last lines that the guest printed on its console, for a reason that helps. */
  readConsole(): Promise<string>;
  /** Ends the VM's process, flushing its disks when it still listens; resolves when the process is gone. */
  end(): Promise<void>;
}

export interface Hypervisor {
  readonly isolation: Isolation;
  launch(spec: VmSpec): Promise<Vm>;
  /** VMs of this data directory that run already, by machine id; the ones that do not answer are ended. */
  adopt(): Promise<Map<string, Vm>>;
}
