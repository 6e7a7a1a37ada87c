// The network settings of a guest with a given address, and all settings of a clone with a given lease.
import type { GuestIdentity, GuestLease } from '../guest/guest.ts';
import type { CloneLease } from '../network/address-leases.ts';
import type { HostNetwork } from '../network/network.ts';
import { macOfIp } from '../network/subnet.ts';

export type GuestNetwork = Pick<GuestIdentity, 'address' | 'gateway' | 'nameServers' | 'mac' | 'mtu'>;

export function guestNetwork(network: HostNetwork, privateIp: string): GuestNetwork {
  return {
    address: `${privateIp}/${network.prefix}`,
    gateway: network.gateway,
    nameServers: network.nameServers,
    mac: macOfIp(privateIp),
    mtu: network.mtu,
  };
}

export function guestLease(network: HostNetwork, { systemId, hostname, address }: CloneLease): GuestLease {
  return { systemId, hostname, ...guestNetwork(network, address) };
}
