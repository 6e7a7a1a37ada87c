// The network settings of a guest with a given address.
import type { GuestLease } from '../guest/guest.ts';
import type { HostNetwork } from '../network/network.ts';
import { macOfIp } from '../network/subnet.ts';

export function guestNetwork(network: HostNetwork, privateIp: string): GuestLease {
  return {
    address: `${privateIp}/${network.prefix}`,
    gateway: network.gateway,
    nameServers: network.nameServers,
    mac: macOfIp(privateIp),
    mtu: network.mtu,
  };
}
