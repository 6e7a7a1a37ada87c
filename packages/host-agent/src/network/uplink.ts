// Reads the properties of the interface with the host's default route.
import { readFileSync } from 'node:fs';

const ETHERNET_MTU = 1500;

/**
 * Returns the MTU of the default route in bytes, at most 1500; 1500 without a default route. A machine with a larger
 * MTU than this would lose packets.
 */
export function uplinkMtu(): number {
  const route = readFileSync('/proc/net/route', 'utf8')
    .split('\n')
    .map((line) => line.split('\t'))
    .find((fields) => fields[1] === '00000000');
  if (!route?.[0]) return ETHERNET_MTU;
  return Math.min(ETHERNET_MTU, Number(readFileSync(`/sys/class/net/${route[0]}/mtu`, 'utf8')));
}
