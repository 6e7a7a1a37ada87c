// A VM with all that belongs to it on the host: process, jail, tap, rules, run directory. Made together, ended together.
import { rm } from 'node:fs/promises';
import { type Hypervisor, newVmId, type Vm, type VmSpec } from '../hypervisor/driver.ts';
import type { HostNetwork } from '../network/network.ts';

export type VmPlan = Omit<VmSpec, 'vmId' | 'nic'> & {
  /** Its address, when its machine is known; without one nothing passes its NIC. */
  privateIp?: string;
};

export type VmLog = { warn(details: object, message: string): void };

export class VmHost {
  readonly hypervisor: Hypervisor;
  readonly network: HostNetwork;
  readonly #log: VmLog;
  /** VMs that run, or are being started (undefined). */
  readonly #vms = new Map<string, Vm | undefined>();
  /** VMs that are gone, and whose network could not be removed yet. */
  readonly #attached = new Set<string>();
  /** The address of each VM, from before the network hears of it until the network has let it go. */
  readonly #addresses = new Map<string, string>();
  readonly #claimed = new Set<string>();

  constructor(hypervisor: Hypervisor, network: HostNetwork, log: VmLog) {
    this.hypervisor = hypervisor;
    this.network = network;
    this.#log = log;
  }

  /** Starts a VM; its rules stand before its vCPUs run. Throws like {@link Hypervisor.launch}; nothing is left then. */
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
      // The uid was reserved before there was anything that a failed launch would have released.
      await this.hypervisor.release(vmId).catch((err) => this.#warn(vmId, err, 'a VM that did not start is not gone'));
      await this.#detach(vmId);
      this.#vms.delete(vmId);
      throw error;
    } finally {
      unclaim();
    }
  }

  /** Lets a VM speak as this address and as no other; see {@link HostNetwork.assign}. */
  async assignAddress(vmId: string, privateIp: string): Promise<void> {
    this.#addresses.set(vmId, privateIp);
    await this.network.assign(vmId, privateIp);
  }

  /** The addresses that the network of the host may still know, also of machines that were removed. */
  heldAddresses(): Iterable<string> {
    return this.#addresses.values();
  }

  /** Ends a VM and removes all of it but its disk. What the network does not let go is tried again by later calls. */
  async discard(vm: Vm): Promise<void> {
    // It is known, and no longer one that should be whole.
    this.#vms.set(vm.vmId, undefined);
    const unclaim = this.claim(vm.runDir);
    try {
      await vm.end();
    } finally {
      // Whatever did not end is nobody's from here on: the audit finds it, and removes it.
      for (const vmId of new Set([...this.#attached, vm.vmId])) await this.#detach(vmId);
      await rm(vm.runDir, { recursive: true, force: true }).catch((err) =>
        this.#warn(vm.vmId, err, 'the run directory of a VM was not removed'),
      );
      this.#vms.delete(vm.vmId);
      unclaim();
    }
  }

  /** Says that a file or folder is in use though no running VM has it, until what is returned is called. */
  claim(path: string): () => void {
    this.#claimed.add(path);
    return () => void this.#claimed.delete(path);
  }

  isClaimed(path: string): boolean {
    return this.#claimed.has(path);
  }

  /**
   * Takes up the VMs of an earlier agent, and removes what the network has of others. `addresses`: of the VMs that are
   * machines, by VM id. Run once, at the start.
   */
  async adopt(found: readonly Vm[], addresses: ReadonlyMap<string, string>): Promise<void> {
    for (const [vmId, address] of addresses) this.#addresses.set(vmId, address);
    for (const vm of found) this.#vms.set(vm.vmId, vm);
    for (const vmId of await this.network.listVmIds()) if (!this.#vms.has(vmId)) await this.#detach(vmId);
  }

  /** Ids of the VMs that may have something on the host now. */
  knownIds(): ReadonlySet<string> {
    return new Set(this.#vms.keys());
  }

  /** The VMs that were started, and that nobody began to discard. */
  running(): Vm[] {
    return [...this.#vms.values()].filter((vm) => vm !== undefined);
  }

  /** Removes what a VM that nobody knows has on the host. Throws when the network cannot. */
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
