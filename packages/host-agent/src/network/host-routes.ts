// Knows which networks the host itself is in or has routes to. Machines must not use their addresses, and must not
// reach the host's neighbours. It reads the kernel's files, which needs no privileges and no other program.
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { networkOf, prefixOf } from './subnet.ts';

/** The routes of all routing tables, also of those that only policy rules use. */
const ROUTES = '/proc/net/fib_trie';
/**
 * A route to more addresses than the largest private range (10.0.0.0/8) is a way to the internet: a default route, or
 * one of the halves that some VPNs use instead (0.0.0.0/1). It names no network that the host is in.
 */
const SHORTEST_PREFIX = 8;

/** IPv4 networks in CIDR notation. */
export type HostRoutes = {
  /** Everything that has a route or is the network of an interface. */
  used: readonly string[];
  /** Networks that the host reaches without a router. */
  attached: readonly string[];
};

/** Reads the host's routes and the networks of its interfaces. */
export function readHostRoutes(): HostRoutes {
  const own = Object.values(networkInterfaces()).flatMap((entries) =>
    (entries ?? []).flatMap(({ cidr }) => (cidr?.includes('.') ? networkOf(cidr) : [])),
  );
  return hostRoutes(readFileSync(ROUTES, 'utf8'), own);
}

/**
 * Returns the routes in the text of /proc/net/fib_trie, and `own`, the networks of the interfaces. An interface can
 * have a network without a route (`noprefixroute`).
 */
export function hostRoutes(fibTrie: string, own: readonly string[]): HostRoutes {
  const found = { used: new Set<string>(), attached: new Set<string>() };
  const add = (cidr: string, isAttached: boolean) => {
    if (prefixOf(cidr) < SHORTEST_PREFIX) return;
    found.used.add(cidr);
    if (isAttached) found.attached.add(cidr);
  };
  // An address is on a line of its own. The routes to it follow, as `/prefix scope TYPE`.
  let address = '';
  for (const line of fibTrie.split('\n')) {
    address = /\|-- ([0-9.]+)$/.exec(line)?.[1] ?? address;
    const route = /^\s+(\/\d+) (\w+) ([A-Z]+)/.exec(line);
    if (route) add(`${address}${route[1]}`, route[2] === 'link' && route[3] === 'UNICAST');
  }
  for (const cidr of own) add(cidr, true);
  return { used: [...found.used].sort(), attached: [...found.attached].sort() };
}
