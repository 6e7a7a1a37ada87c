// The private addresses of a host's subnet: a pure mapping from a counter to an address.

/** The network itself, the gateway, and .2 and .3, which QEMU's user networking answers on. */
const RESERVED_AT_START = 4;
/** The broadcast address. */
const RESERVED_AT_END = 1;

type Subnet = { base: number; size: number };

function parseSubnet(cidr: string): Subnet {
  const match = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\/(\d+)$/.exec(cidr);
  const [a, b, c, d, prefix] = (match ?? []).slice(1).map(Number);
  if (a === undefined || b === undefined || c === undefined || d === undefined || prefix === undefined) {
    throw new Error(`The host reported a subnet that is no CIDR: ${cidr}.`);
  }
  const size = 2 ** (32 - prefix);
  const address = ((a * 256 + b) * 256 + c) * 256 + d;
  return { base: address - (address % size), size };
}

/**
 * `addressAt(subnet, counter)` in SQL, for a counter that is read under a lock; both are expressions.
 * A subnet without addresses is a division by zero in neither.
 */
export function addressInSql(subnet: string, counter: string): string {
  const base = `network(${subnet}::inet)::inet + ${RESERVED_AT_START}`;
  const count = `(2 ^ (32 - masklen(${subnet}::inet)))::bigint - ${RESERVED_AT_START + RESERVED_AT_END}`;
  return `host(${base} + (${counter})::bigint % greatest(1, ${count}))`;
}

/** How many machines a subnet has addresses for. */
export function countAddresses(cidr: string): number {
  return Math.max(0, parseSubnet(cidr).size - RESERVED_AT_START - RESERVED_AT_END);
}

/** The address for a counter that may grow for ever: addresses come round again as late as possible. */
export function addressAt(cidr: string, index: number): string {
  const { base } = parseSubnet(cidr);
  const value = base + RESERVED_AT_START + (index % countAddresses(cidr));
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
}
