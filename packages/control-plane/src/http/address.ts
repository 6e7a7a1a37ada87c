// Client addresses, as the limits on connections and sign-ins count them.
import { BlockList, isIP, isIPv6 } from 'node:net';

/**
 * Returns what counts as one client: an IPv4 address, or a /64 network of IPv6, because a client usually has all
 * addresses of its /64.
 */
export function clientOf(ip: string): string {
  return isIPv6(ip) && !ip.includes('.') ? networkOf(ip) : ip;
}

/** Returns a function that says whether an address is one of the configured reverse proxies (SANDBAR_TRUST_PROXY). */
export function proxyMatcher(trustProxy: string): (ip: string) => boolean {
  const proxies = new BlockList();
  for (const item of trustProxy.split(',').filter(Boolean)) {
    const [address = '', bits] = item.trim().split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (bits === undefined) proxies.addAddress(address, family);
    else proxies.addSubnet(address, Number(bits), family);
  }
  return (ip) => proxies.check(ip, isIPv6(ip) ? 'ipv6' : 'ipv4');
}

/**
 * Returns the address of the client behind trusted proxies. `forwardedFor`: the header X-Forwarded-For. Each proxy
 * appends the address of its own client to it. Only what trusted proxies wrote counts.
 */
export function clientAddress(
  remote: string,
  forwardedFor: string | string[] | undefined,
  isProxy: (ip: string) => boolean,
): string {
  const hops = [forwardedFor ?? []]
    .flat()
    .join(',')
    .split(',')
    .map((hop) => hop.trim());
  let address = remote;
  while (isProxy(address) && hops.length > 0) {
    const before = hops.pop() ?? '';
    if (isIP(before) === 0) break;
    address = before;
  }
  return address;
}

/** The first four groups of an IPv6 address, after `::` is expanded to the zeros that it stands for. */
function networkOf(ip: string): string {
  const [before = '', after] = (ip.split('%')[0] ?? '').split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const gap = after === undefined ? [] : Array<string>(8 - head.length - tail.length).fill('0');
  return [...head, ...gap, ...tail].slice(0, 4).join(':');
}
