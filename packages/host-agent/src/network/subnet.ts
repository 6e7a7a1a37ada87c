// The subnet of a host: chooses and parses it, and derives the gateway and the MACs from it.
import { createHash } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';

/** When no subnet is configured, one of the /16 networks 10.128.0.0 to 10.254.0.0 is chosen. */
const FIRST_SECOND_OCTET = 128;
const CANDIDATES = 127;

export type Subnet = {
  cidr: string;
  prefix: number;
  /** The host's own address in it. */
  gateway: string;
  /** The name server of machines under QEMU's user networking. No machine gets this address or the gateway's (addresses.ts). */
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

/** Returns how many addresses a network in CIDR notation has. */
export function subnetSize(cidr: string): number {
  return 2 ** (32 - Number(cidr.split('/')[1]));
}

/** Whether an IPv4 address belongs to a network in CIDR notation. */
export function isInSubnet(address: string, cidr: string): boolean {
  const [base = ''] = cidr.split('/');
  const size = subnetSize(cidr);
  return isIPv4(address) && Math.floor(ipToNumber(address) / size) === Math.floor(ipToNumber(base) / size);
}

/**
 * A subnet that overlaps none of the addresses in use on the host; the same data directory asks for the same one first.
 * `usedAddresses`: IPv4 addresses of the host's interfaces and the targets of its routes.
 */
export function chooseSubnet(home: string, usedAddresses: readonly string[]): string {
  const start = createHash('sha256').update(home).digest().readUInt32BE(0) % CANDIDATES;
  for (let step = 0; step < CANDIDATES; step++) {
    const prefix = `10.${FIRST_SECOND_OCTET + ((start + step) % CANDIDATES)}.`;
    if (!usedAddresses.some((address) => address.startsWith(prefix))) return `${prefix}0.0/16`;
  }
  throw new ServiceError(
    'validation_error',
    'every 10.128.0.0/9 network is in use on this host; set SANDBAR_SUBNET to a free one',
  );
}

/** A locally administered MAC that follows from the address, so that both are unique on a host together. */
export function macOfIp(ip: string): string {
  return `02:5b${ip
    .split('.')
    .map((octet) => `:${Number(octet).toString(16).padStart(2, '0')}`)
    .join('')}`;
}

/** The MAC of a NIC whose machine is not known yet. The guest later takes the MAC that belongs to its address. */
export const PLACEHOLDER_MAC = macOfIp('0.0.0.0');

/** The address as a number, so that a subnet is a range. */
export function ipToNumber(ip: string): number {
  return ip.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0);
}

/** The reverse of {@link ipToNumber}. */
export function formatIp(value: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
}
