// How machines reach the network. As root: a bridge of our own with NAT. Otherwise: QEMU's user networking.
// A VM is attached before a machine is known (a pooled clone has no address); what it may say comes with `assign`.
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import type { Static } from 'typebox';
import type { Nic } from '../hypervisor/driver.ts';

export interface HostNetwork {
  readonly kind: Static<typeof HostInfo>['network'];
  /** CIDR of the machines and the addresses that a machine is told. */
  readonly subnet: string;
  readonly prefix: number;
  readonly gateway: string;
  readonly nameServers: readonly string[];
  /** Bytes; the host's own uplink may carry less than the usual 1500. */
  readonly mtu: number;
  /**
   * Makes the NIC of a VM: a tap that only `uid` may open (undefined: root only), an isolated port of the bridge. Nothing
   * passes it yet, in either direction. May be repeated.
   */
  attach(vmId: string, uid: number | undefined): Promise<Nic>;
  /**
   * From now on the NIC may speak as this address and its MAC, and as nothing else; resolves when the rules stand. May be
   * repeated; another address replaces the first, and the last VM that claims an address has it alone.
   */
  assign(vmId: string, privateIp: string): Promise<void>;
  /**
   * Removes all of a VM: rules, tap, and what its connections left on the host, so that the next one with its address
   * starts from nothing. Nothing happens when there is nothing.
   */
  detach(vmId: string): Promise<void>;
  /** Ids of the VMs that have a tap or a rule here, as the kernel tells it. */
  listVmIds(): Promise<string[]>;
  /** Removes all that the host carries for machines. Only when none runs; may be repeated. */
  remove(): Promise<void>;
}
