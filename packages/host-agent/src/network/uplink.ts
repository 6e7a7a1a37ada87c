// The interface that the host itself reaches the world through.
import { readFileSync } from 'node:fs';

const ETHERNET_MTU = 1500;

/** Bytes a packet may have on the default route; 1500 where there is none. A machine told more would lose packets. */
export function uplinkMtu(): number {
  const route = readFileSync('/proc/net/route', 'utf8')
    .split('\n')
    .map((line) => line.split('\t'))
    .find((fields) => fields[1] === '00000000');
  if (!route?.[0]) return ETHERNET_MTU;
  return Math.min(ETHERNET_MTU, Number(readFileSync(`/sys/class/net/${route[0]}/mtu`, 'utf8')));
}
