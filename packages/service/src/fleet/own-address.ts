// Finds the address at which other computers reach this one.
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { BlockList, isIP } from 'node:net';

/** Addresses that mean another computer, or none, on every computer: loopback, "any", and link-local. */
const LOCAL = new BlockList();
LOCAL.addSubnet('127.0.0.0', 8);
LOCAL.addSubnet('0.0.0.0', 8);
LOCAL.addSubnet('169.254.0.0', 16);
LOCAL.addAddress('::1', 'ipv6');
LOCAL.addAddress('::', 'ipv6');
LOCAL.addSubnet('fe80::', 10, 'ipv6');

/** Whether other computers cannot reach this computer at the address, or by the name. */
export function isLocal(host: string): boolean {
  const version = isIP(host);
  if (version === 0) return host === 'localhost' || host.endsWith('.localhost');
  return LOCAL.check(host, version === 6 ? 'ipv6' : 'ipv4');
}

/**
 * Returns the address of the interface through which this computer reaches another one. Sends nothing. Throws when the
 * name is unknown or there is no route.
 */
export async function addressTowards(host: string): Promise<string> {
  const { address, family } = await lookup(host);
  // The kernel chooses the address when a datagram socket is connected.
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4');
  try {
    socket.connect(9, address);
    await once(socket, 'connect');
    return socket.address().address;
  } finally {
    socket.close();
  }
}
