// The interface to the machines' network. With root it is a bridge of our own with NAT; without root it is QEMU's
// user networking. A VM is attached before its machine is known, because a pooled clone has no address yet. `assign`
// later gives it the address.
import type { Socket } from 'node:net';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import type { Static } from 'typebox';
import type { Nic } from '../hypervisor/driver.ts';

export interface HostNetwork {
  readonly kind: Static<typeof HostInfo>['network'];
  /** The machines' subnet (CIDR), and the addresses that every machine is configured with. */
  readonly subnet: string;
  readonly prefix: number;
  readonly gateway: string;
  readonly nameServers: readonly string[];
  /** In bytes. The host's uplink may have a smaller one than the usual 1500. */
  readonly mtu: number;
  /** Resolves when machines can use the network. Rejects with the reason when a part of it does not start. */
  ready(): Promise<void>;
  /**
   * Makes the NIC of a VM: an isolated bridge port with a tap that only `uid` may open (undefined: root). The firewall
   * drops everything on it until `assign`. May be repeated.
   */
  attach(vmId: string, uid: number | undefined): Promise<Nic>;
  /**
   * Lets the NIC use this address and its MAC and no others. Resolves when the rules are in force. May be repeated: a
   * new address replaces the old one, and an address belongs to the last VM it was assigned to.
   */
  assign(vmId: string, privateIp: string): Promise<void>;
  /**
   * Removes the VM's rules, its tap and its connection entries, so that the next VM with this address inherits nothing.
   * Does nothing when there are none.
   */
  detach(vmId: string): Promise<void>;
  /**
   * Connects to a TCP port at the address of a machine. Undefined when the machine does not accept the connection, and
   * always where the host cannot reach machines.
   */
  connect(privateIp: string, port: number): Promise<Socket | undefined>;
  /** Lists the ids of VMs that have a tap or a rule in the kernel. */
  listVmIds(): Promise<string[]>;
  /**
   * Ends the parts that run only while the agent runs, such as the name relay. Machines keep their network, but names
   * no longer resolve.
   */
  close(): Promise<void>;
  /**
   * Removes everything that the host has for the network of machines. Call it only when no VM runs. May be repeated.
   */
  remove(): Promise<void>;
}
