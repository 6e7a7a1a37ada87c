// Makes and removes a VM together with everything that belongs to it on the host: process, jail, tap, rules, run
// directory.
import { rm } from 'node:fs/promises';
import { type Hypervisor, newVmId, type Vm, type VmSpec } from '../hypervisor/driver.ts';
import type { HostNetwork } from '../network/network.ts';

export type VmPlan = Omit<VmSpec, 'vmId' | 'nic'> & {
  /** The address of its machine. Undefined while no machine is known: the NIC then passes no traffic. */
  privateIp?: string;
};

export type VmLog = { warn(details: object, message: string): void };

export class VmHost {
  readonly hypervisor: Hypervisor;
  readonly network: HostNetwork;
  readonly #log: VmLog;
  /** All VMs by id. Undefined: the VM is being started or ended. */
  readonly #vms = new Map<string, Vm | undefined>();
  /** Ids of VMs that are gone, but whose network could not be removed yet. */
  readonly #attached = new Set<string>();
  /** The address of each VM: noted before the network gets it, and removed when the network of the VM is gone. */
  readonly #addresses = new Map<string, string>();
  readonly #claimed = new Set<string>();

  constructor(hypervisor: Hypervisor, network: HostNetwork, log: VmLog) {
    this.hypervisor = hypervisor;
    this.network = network;
    this.#log = log;
  }

  /**
   * Starts a VM. Its firewall rules are in force before its vCPUs run. Throws like {@link Hypervisor.launch}; nothing
   * of the VM is left then.
   */
  async launch({ privateIp, ...plan }: VmPlan): Promise<Vm> {
    const vmId = newVmId();
    this.#vms.set(vmId, undefined);
    const unclaim = this.claim(plan.runDir);
    try {
      const nic = await this.network.attach(vmId, this.hypervisor.reserveUid(vmId));
      if (privateIp !== undefined) await this.assignAddress(vmId, privateIp);
      const vm = await this.hypervisor.launch({ ...plan, vmId, nic });
      this.#vms.set(vmId, vm);
      return vm;
    } catch (error) {
      // Release the uid that was reserved above. If the launch was never reached, nothing else releases it.
      await this.hypervisor.release(vmId).catch((err) => this.#warn(vmId, err, 'a VM that did not start is not gone'));
      await this.#detach(vmId);
      this.#vms.delete(vmId);
      throw error;
    } finally {
      unclaim();
    }
  }

  /** Lets a VM use this address and no other; see {@link HostNetwork.assign}. */
  async assignAddress(vmId: string, privateIp: string): Promise<void> {
    this.#addresses.set(vmId, privateIp);
    await this.network.assign(vmId, privateIp);
  }

  /** The addresses that the host's network may still carry, also those of removed machines. */
  heldAddresses(): Iterable<string> {
    return this.#addresses.values();
  }

  /**
   * Ends a VM and removes everything of it except its disk. When its network cannot be removed, later calls try again.
   */
  async discard(vm: Vm): Promise<void> {
    // The VM is still known here, but from now on parts of it may be missing.
    this.#vms.set(vm.vmId, undefined);
    const unclaim = this.claim(vm.runDir);
    try {
      await vm.end();
      // Remove the directory only after the VM's processes have ended, because they could replace a folder with a
      // symlink while the agent removes it.
      await rm(vm.runDir, { recursive: true, force: true }).catch((err) =>
        this.#warn(vm.vmId, err, 'the run directory of a VM was not removed'),
      );
    } finally {
      // If a part of the VM could not be removed, the audit finds and removes it later.
      for (const vmId of new Set([...this.#attached, vm.vmId])) await this.#detach(vmId);
      this.#vms.delete(vm.vmId);
      unclaim();
    }
  }

  /** Marks a file or folder as in use though no running VM has it, until the returned function is called. */
  claim(path: string): () => void {
    this.#claimed.add(path);
    return () => void this.#claimed.delete(path);
  }

  isClaimed(path: string): boolean {
    return this.#claimed.has(path);
  }

  /**
   * Takes over the VMs of an earlier agent (`found`), and removes what the network has of all other VMs. `addresses`:
   * the addresses of those VMs that belong to machines, by VM id. Run once, at the start.
   */
  async adopt(found: readonly Vm[], addresses: ReadonlyMap<string, string>): Promise<void> {
    for (const [vmId, address] of addresses) this.#addresses.set(vmId, address);
    for (const vm of found) this.#vms.set(vm.vmId, vm);
    for (const vmId of await this.network.listVmIds()) if (!this.#vms.has(vmId)) await this.#detach(vmId);
  }

  /** Returns the ids of all VMs that may have anything on the host now. */
  knownIds(): ReadonlySet<string> {
    return new Set(this.#vms.keys());
  }

  /** The VMs that run and are not being ended. */
  running(): Vm[] {
    return [...this.#vms.values()].filter((vm) => vm !== undefined);
  }

  /** Removes what is left on the host of a VM that is not known here. Throws when the network cannot be removed. */
  async removeStray(vmId: string): Promise<void> {
    if (this.#vms.has(vmId)) return;
    await this.hypervisor.release(vmId);
    await this.network.detach(vmId);
    this.#forgetNetwork(vmId);
  }

  async #detach(vmId: string): Promise<void> {
    try {
      await this.network.detach(vmId);
      this.#forgetNetwork(vmId);
    } catch (err) {
      this.#attached.add(vmId);
      this.#warn(vmId, err, 'the network of a VM was not removed');
    }
  }

  #forgetNetwork(vmId: string): void {
    this.#attached.delete(vmId);
    this.#addresses.delete(vmId);
  }

  #warn(vmId: string, err: unknown, message: string): void {
    this.#log.warn({ vm_id: vmId, err }, message);
  }
}
