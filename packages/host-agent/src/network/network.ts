// How machines reach the network. As root: a bridge of our own with NAT. Otherwise: QEMU's user networking.
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
  /** Makes the machine's side ready; may be repeated. */
  attach(machineId: string, privateIp: string): Promise<Nic>;
  /** Removes what `attach` made; nothing happens when there is nothing. */
  detach(machineId: string): Promise<void>;
  /** Removes all that the host carries for machines. Only when none runs. */
  remove(): Promise<void>;
}
