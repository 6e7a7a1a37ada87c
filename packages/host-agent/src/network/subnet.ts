// The subnet of a host: chooses and parses it, and derives the gateway and the MACs from it.
import { createHash } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';

/** When no subnet is configured, one of the /16 networks 10.128.0.0 to 10.254.0.0 is chosen. */
const CANDIDATES = sixteens(10, 128, 127);
/**
 * When all of those networks are in use, for example by a VPN to 10.0.0.0/8, one of 172.16.0.0 to 172.31.0.0 is chosen.
 */
const OTHER_CANDIDATES = sixteens(172, 16, 16);

export type Subnet = {
  cidr: string;
  prefix: number;
  /** The host's own address in the subnet. */
  gateway: string;
  /**
   * The name server of machines under QEMU's user networking. No machine gets this address or the gateway's
   * (addresses.ts).
   */
  userModeNameServer: string;
};

/** Parses a subnet such as `10.1.0.0/16`. Throws `validation_error` unless it is an IPv4 network of 8 to 24 bits. */
export function parseSubnet(cidr: string): Subnet {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(cidr);
  const octets = match?.slice(1, 5).map(Number) ?? [];
  const prefix = Number(match?.[5]);
  const base = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  const size = 2 ** (32 - prefix);
  if (!match || octets.some((octet) => octet > 255) || prefix < 8 || prefix > 24 || base % size !== 0) {
    throw new ServiceError(
      'validation_error',
      `SANDBAR_SUBNET must be an IPv4 network such as 10.200.0.0/16, not "${cidr}"`,
    );
  }
  return { cidr, prefix, gateway: formatIp(base + 1), userModeNameServer: formatIp(base + 3) };
}

/**
 * Parses the private ranges that machines are allowed to reach, such as `10.1.0.0/16, 192.168.7.9`. Throws
 * `validation_error` naming an entry that is not an IPv4 range.
 */
export function parseRanges(text: string): string[] {
  return text
    .split(',')
    .map((range) => range.trim())
    .filter((range) => range !== '')
    .map((range) => {
      const [address = '', bits = '32', ...rest] = range.split('/');
      const prefix = Number(bits);
      const isRange = isIPv4(address) && /^\d{1,2}$/.test(bits) && prefix <= 32 && rest.length === 0;
      if (isRange && ipToNumber(address) % 2 ** (32 - prefix) === 0) return `${address}/${prefix}`;
      throw new ServiceError(
        'validation_error',
        `SANDBAR_NETWORK_ALLOW must be a list of IPv4 ranges such as 10.1.0.0/16,192.168.7.9, and "${range}" is none`,
      );
    });
}

/** Returns how many bits of a network in CIDR notation are fixed. */
export function prefixOf(cidr: string): number {
  return Number(cidr.split('/')[1]);
}

/** Returns how many addresses a network in CIDR notation has. */
export function subnetSize(cidr: string): number {
  return 2 ** (32 - prefixOf(cidr));
}

/** Whether an IPv4 address belongs to a network in CIDR notation. */
export function isInSubnet(address: string, cidr: string): boolean {
  return isIPv4(address) && overlaps(`${address}/32`, cidr);
}

/** Whether two networks in CIDR notation have an address in common. Then one of them contains the other. */
export function overlaps(one: string, other: string): boolean {
  const size = Math.max(subnetSize(one), subnetSize(other));
  const [first, second] = [one, other].map((cidr) => Math.floor(firstAddress(cidr) / size));
  return first === second;
}

/** Returns the network that an address such as `10.1.2.3/16` is in: `10.1.0.0/16`. */
export function networkOf(cidr: string): string {
  const size = subnetSize(cidr);
  return `${formatIp(Math.floor(firstAddress(cidr) / size) * size)}/${prefixOf(cidr)}`;
}

/**
 * Returns a subnet that overlaps no network in `used` (CIDR notation). The same data directory tries the candidates in
 * the same order each time. Throws `validation_error` when all are in use.
 */
export function chooseSubnet(home: string, used: readonly string[]): string {
  const start = createHash('sha256').update(home).digest().readUInt32BE(0) % CANDIDATES.length;
  const ordered = [...CANDIDATES.slice(start), ...CANDIDATES.slice(0, start), ...OTHER_CANDIDATES];
  const free = ordered.find((candidate) => !used.some((cidr) => overlaps(cidr, candidate)));
  if (free !== undefined) return free;
  throw new ServiceError(
    'validation_error',
    'this host uses every network in 10.128.0.0/9 and 172.16.0.0/12; set SANDBAR_SUBNET to a free one',
  );
}

/** Returns /16 networks in a row. */
function sixteens(first: number, second: number, count: number): string[] {
  return Array.from({ length: count }, (_, at) => `${first}.${second + at}.0.0/16`);
}

/**
 * Returns a locally administered MAC that is derived from the address, so that the MAC is unique on a host like the
 * address.
 */
export function macOfIp(ip: string): string {
  return `02:5b${ip
    .split('.')
    .map((octet) => `:${Number(octet).toString(16).padStart(2, '0')}`)
    .join('')}`;
}

/** The MAC of a NIC whose machine is not known yet. The guest later takes the MAC that belongs to its address. */
export const PLACEHOLDER_MAC = macOfIp('0.0.0.0');

function firstAddress(cidr: string): number {
  return ipToNumber(cidr.split('/')[0] ?? '');
}

/** The address as a number, so that a subnet is a range. */
export function ipToNumber(ip: string): number {
  return ip.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0);
}

/** The reverse of {@link ipToNumber}. */
export function formatIp(value: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
}
