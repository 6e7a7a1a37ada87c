// Which addresses of the host's subnet machines may have, and in which order they are given out. Arithmetic only.
import { formatIp, ipToNumber, subnetSize } from './subnet.ts';

/** The address of the network itself, the gateway, and .2 and .3, which QEMU's user networking answers on. */
const RESERVED_AT_START = 4;
/** The broadcast address. */
const RESERVED_AT_END = 1;

/** How many machines a subnet in CIDR notation has addresses for. */
export function countAddresses(cidr: string): number {
  return Math.max(0, subnetSize(cidr) - RESERVED_AT_START - RESERVED_AT_END);
}

/** Returns the address for a counter (0 or more). A counter past the last address wraps around to the first address. */
export function addressAt(cidr: string, counter: number): string {
  return formatIp(firstOf(cidr) + (counter % countAddresses(cidr)));
}

/** Whether a machine of this subnet may have the address. */
export function isMachineAddress(cidr: string, address: string): boolean {
  const place = ipToNumber(address) - firstOf(cidr);
  return place >= 0 && place < countAddresses(cidr);
}

/** The first counter from `from` on whose address is not in `taken`; undefined when all addresses are taken. */
export function nextFreeCounter(cidr: string, from: number, taken: ReadonlySet<string>): number | undefined {
  const end = from + countAddresses(cidr);
  for (let counter = from; counter < end; counter++) if (!taken.has(addressAt(cidr, counter))) return counter;
  return undefined;
}

function firstOf(cidr: string): number {
  const [base = ''] = cidr.split('/');
  return ipToNumber(base) + RESERVED_AT_START;
}
