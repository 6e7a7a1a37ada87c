// Networking without root: each QEMU translates addresses for its own machine (slirp). A machine has its private_ip,
// can reach the internet and resolve names, and cannot be reached from outside. No taps or rules exist on the host.
import type { Socket } from 'node:net';
import type { Nic } from '../hypervisor/driver.ts';
import type { HostNetwork } from './network.ts';
import { PLACEHOLDER_MAC, type Subnet } from './subnet.ts';
import { uplinkMtu } from './uplink.ts';

export class UserNetwork implements HostNetwork {
  readonly kind = 'user';
  readonly subnet: string;
  readonly prefix: number;
  readonly gateway: string;
  readonly nameServers: readonly string[];
  readonly mtu = uplinkMtu();

  constructor(subnet: Subnet) {
    this.subnet = subnet.cidr;
    this.prefix = subnet.prefix;
    this.gateway = subnet.gateway;
    this.nameServers = [subnet.userModeNameServer];
  }

  async ready(): Promise<void> {}

  async attach(): Promise<Nic> {
    return {
      kind: 'user',
      mac: PLACEHOLDER_MAC,
      subnet: this.subnet,
      gateway: this.gateway,
      nameServer: this.nameServers[0] ?? this.gateway,
    };
  }

  /** Nothing to do: each QEMU has its own network, so no machine can use the address of another. */
  async assign(): Promise<void> {}

  async detach(): Promise<void> {}

  /** QEMU's network lets nobody in. The guest agent connects instead. */
  async connect(_privateIp: string, _port: number): Promise<Socket | undefined> {
    return undefined;
  }

  async listVmIds(): Promise<string[]> {
    return [];
  }

  async close(): Promise<void> {}

  async remove(): Promise<void> {}
}
