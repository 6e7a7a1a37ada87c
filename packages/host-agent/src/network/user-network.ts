// Networking without any right on the host: each QEMU translates for its own machine (slirp). Machines have their
// private_ip, reach out and resolve names; they cannot be reached, and there are no taps or rules to leave behind.
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

  async attach(): Promise<Nic> {
    return {
      kind: 'user',
      mac: PLACEHOLDER_MAC,
      subnet: this.subnet,
      gateway: this.gateway,
      nameServer: this.nameServers[0] ?? this.gateway,
    };
  }

  /** Each QEMU translates on its own, so there is nobody whose address a machine could take. */
  async assign(): Promise<void> {}

  async detach(): Promise<void> {}

  async listVmIds(): Promise<string[]> {
    return [];
  }

  async remove(): Promise<void> {}
}
