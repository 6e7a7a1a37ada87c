// Builds the packet filter's rules for machines, as text for nft. There are two tables with the same name. The one in
// family `bridge` checks the sender of each frame, because ARP, MAC addresses and traffic between ports are visible
// only there. The one in family `inet` checks destinations, because NAT and connection tracking exist only there. A
// third table limits what one machine uses up (machine-limits.ts). A `drop` in our chains is final, but an `accept`
// ends only our own chain. If the host's firewall drops forwarded packets by default, it still does, and the host's
// owner has to allow the bridge. We never change tables of other programs.
import { limitsTable, machineLimits } from './machine-limits.ts';
import { ANY_BRIDGE } from './names.ts';
import { macOfIp, overlaps, prefixOf } from './subnet.ts';

export type RuleOptions = {
  bridge: string;
  table: string;
  /** Interface group of the taps. */
  group: number;
  /** The machines' subnet (CIDR). */
  subnet: string;
  gateway: string;
  /** The uids of VM processes, and of other processes that parse data from guests. */
  uids: { first: number; last: number };
  /** The uid of the name relay, one of `uids`. */
  relayUid: number;
  /** CIDR ranges that machines may reach although they are private. */
  allow: readonly string[];
  /** Megabits per second for each machine and direction; undefined: no limit. */
  rateMbit: number | undefined;
  /** How many connections of one machine the host tracks at once. */
  connections: number;
};

/** The facts about the host's own network that the rules depend on. They may change at any time. */
export type HostFacts = {
  /** Networks that the host is in (CIDR). No machine reaches them, unless they are in `allow`. */
  networks: readonly string[];
  /** Interfaces that forward packets only because of us (forwarding.ts). */
  claimed: readonly string[];
};

/** The address that each tap may use. */
export type Assigned = ReadonlyMap<string, string>;

/**
 * Ranges that are not part of the public internet (RFC 6890, RFC 1112): this network, private, shared (also where
 * Alibaba Cloud serves credentials), loopback, link-local (where other clouds serve credentials), protocol assignments,
 * benchmarks, multicast, reserved and broadcast. Also the one public address with such a service, the host agent of
 * Azure.
 */
const DENIED_RANGES = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/4',
  '240.0.0.0/4',
] as const;

/**
 * Burst allowance of the rate limit, in bytes. The kernel always adds the bytes of one second at full rate
 * (nft_limit_init). Four packets of the largest size that a tap delivers, so that rates below one such packet per
 * second still work.
 */
export const BURST_BYTES = 4 * 64 * 1024;

/** Returns family and name of each of our tables. */
export function tableNames(table: string): string[] {
  return [`bridge ${table}`, `inet ${table}`, `inet ${limitsTable(table)}`];
}

/** Returns commands that remove all our tables if they exist. */
export function withoutTables(table: string): string {
  return withoutRules(table) + withoutTable('inet', limitsTable(table));
}

/** Returns commands that remove the tables of this file. Family `ip` is included because an earlier version used it. */
function withoutRules(table: string): string {
  return ['ip', 'inet', 'bridge'].map((family) => withoutTable(family, table)).join('');
}

function withoutTable(family: string, table: string): string {
  return `table ${family} ${table}\ndelete table ${family} ${table}\n`;
}

/**
 * Returns commands that replace our rules, including the allowed addresses. They run as one transaction, so there is
 * never a moment without rules. What the limits have counted stays.
 */
export function wholeTables(options: RuleOptions, host: HostFacts, assigned: Assigned): string {
  return (
    withoutRules(options.table) + bridgeTable(options, assigned) + inetTable(options, host) + machineLimits(options)
  );
}

/** Returns commands that replace the host's networks and interfaces in the rules. */
export function hostChange(table: string, host: HostFacts): string {
  const { networks, claimed } = hostElements(host);
  const replace = (set: string, list: string) =>
    `flush set inet ${table} ${set}\n${list === '' ? '' : `add element inet ${table} ${set} { ${list} }\n`}`;
  return replace('host_networks', networks) + replace('claimed', claimed);
}

/** nft refuses a range inside another range of the same set, so only the outer ranges are listed. */
function hostElements({ networks, claimed }: HostFacts): { networks: string; claimed: string } {
  const outer = networks.filter(
    (one) => !networks.some((other) => prefixOf(other) < prefixOf(one) && overlaps(one, other)),
  );
  return { networks: outer.join(', '), claimed: claimed.map((name) => `"${name}"`).join(', ') };
}

/**
 * Returns a command that allows more taps to send. It uses `create`, which fails on existing elements, where `add`
 * would silently keep them. `echoes`: what nft prints about the change when run with --echo. The spaces in an echo
 * differ from the command, so the command itself repeated by a line editor does not match.
 */
export function additions(table: string, added: Assigned): { command: string; echoes: string[] } {
  const { pins, addresses } = elements(added);
  return {
    command:
      `create element bridge ${table} pins {${pins}};` + `create element bridge ${table} addresses {${addresses}}\n`,
    echoes: [...added].map(([tap, ip]) => ` element bridge ${table} addresses { "${tap}" . ${ip} }\n`),
  };
}

/** Returns commands after which all traffic of the given taps is dropped. */
export function removals(table: string, removed: Assigned): string {
  const { pins, addresses } = elements(removed);
  return `delete element bridge ${table} pins { ${pins} }\ndelete element bridge ${table} addresses { ${addresses} }\n`;
}

function elements(assigned: Assigned): { pins: string; addresses: string } {
  const entries = [...assigned];
  return {
    pins: entries.map(([tap, ip]) => `"${tap}" . ${macOfIp(ip)} . ${ip}`).join(', '),
    addresses: entries.map(([tap, ip]) => `"${tap}" . ${ip}`).join(', '),
  };
}

/**
 * Returns the table of family `bridge`. All frames from a tap pass `prerouting` before the bridge learns from them.
 * Frames to the 802.1D group addresses do so only because the port forwards them (see ports.ts). `input` and `forward`
 * are a second line of defence. Frames to a tap are checked too, because a bridge floods frames with unknown
 * destinations to all ports.
 */
function bridgeTable({ table, group, gateway, rateMbit }: RuleOptions, assigned: Assigned): string {
  const { pins, addresses } = elements(assigned);
  return `
table bridge ${table} {
  set pins {
    type ifname . ether_addr . ipv4_addr
    ${given(pins)}
  }
  set addresses {
    type ifname . ipv4_addr
    ${given(addresses)}
  }
  chain from_machine {
    ether daddr 01:80:c2:00:00:00/44 drop
    ether type ip iifname . ether saddr . ip saddr @pins accept
    ether type arp arp htype 1 arp ptype ip arp hlen 6 arp plen 4 jump arp_from_machine
    drop
  }
  chain arp_from_machine {
    iifname . ether saddr . arp saddr ip != @pins drop
    iifname . arp saddr ether . arp saddr ip != @pins drop
    arp operation request arp daddr ip ${gateway} accept
    arp operation reply accept
    drop
  }
  chain to_machine {
    ether type ip oifname . ether daddr . ip daddr @pins accept
    ether type arp oifname . arp daddr ip @addresses accept
    drop
  }
  chain prerouting {
    type filter hook prerouting priority -250;
    iifgroup ${group} jump from_machine
  }
  chain input {
    type filter hook input priority -250;
    iifgroup ${group} jump from_machine
  }
  chain forward {
    type filter hook forward priority -250;
    iifgroup ${group} drop
    oifgroup ${group} drop
  }
  chain postrouting {
    type filter hook postrouting priority 250;
    oifgroup ${group} jump to_machine
  }
  ${rateMbit === undefined ? '' : rateChains(group, rateMbit)}
}
`;
}

function given(list: string): string {
  return list === '' ? '' : `elements = { ${list} }`;
}

/**
 * Returns a token bucket per tap and direction. The first packet creates the bucket, and it expires after a minute
 * without traffic. These chains run after those that drop packets. So frames flooded to a tap, and packets that a
 * machine may not send, do not count.
 */
function rateChains(group: number, rateMbit: number): string {
  const limit = `limit rate over ${rateMbit * 125_000} bytes/second burst ${BURST_BYTES} bytes`;
  const direction = (name: string, hook: string, side: string, priority: number) => `
  set ${name} {
    type ifname
    size 65535
    flags dynamic,timeout
    timeout 1m
  }
  chain limit_${name} {
    type filter hook ${hook} priority ${priority};
    ${side}group ${group} update @${name} { ${side}name ${limit} } drop
  }`;
  return direction('sent', 'prerouting', 'iif', -240) + direction('received', 'postrouting', 'oif', 260);
}

/**
 * Returns the table of family `inet`. Each packet from a machine is judged by its destination, never by an existing
 * connection, so removing a range from `allow` takes effect at once. Only replies reach a machine. Refused packets are
 * answered, so that programs fail at once instead of hanging; TCP gets a reset, because the kernel limits the rate of
 * ICMP errors.
 * On the claimed interfaces a packet that is not for a machine passes only if it answers a connection that another
 * interface was allowed to forward.
 * A compromised QEMU is in the host's network namespace, because its tap is there. The `output` chain refuses all its
 * IP traffic, even to the host's loopback. Abstract Unix sockets of that namespace pass no packet filter, so these
 * rules do not cover them.
 * A compromised name relay is in that namespace too. It can only answer those who asked it, and send queries to the
 * port of name servers. Its two listening sockets belong to root, who opened them, so a rule on the uid does not match
 * them and another rule checks their port.
 */
function inetTable(options: RuleOptions, host: HostFacts): string {
  const { table, bridge, group, subnet, gateway, uids, relayUid, allow } = options;
  const { networks, claimed } = hostElements(host);
  return `
table inet ${table} {
  set allowed {
    type ipv4_addr
    flags interval
    auto-merge
    ${given(allow.join(', '))}
  }
  set denied {
    type ipv4_addr
    flags interval
    elements = { ${DENIED_RANGES.join(', ')} }
  }
  set host_networks {
    type ipv4_addr
    flags interval
    ${given(networks)}
  }
  set claimed {
    type ifname
    ${given(claimed)}
  }
  chain forward {
    type filter hook forward priority filter;
    iifgroup ${group} drop
    iifname "${bridge}" jump from_machine
    oifname "${bridge}" jump to_machine
    iifname @claimed oifname != "${ANY_BRIDGE}" jump not_for_machines
  }
  chain from_machine {
    meta nfproto ipv6 drop
    ip saddr != ${subnet} drop
    oifname "${bridge}" jump refuse
    ct state invalid drop
    ip daddr @allowed accept
    ip daddr @denied jump refuse
    ip daddr @host_networks jump refuse
    accept
  }
  chain to_machine {
    ct state established,related accept
    drop
  }
  chain not_for_machines {
    ct direction reply return
    drop
  }
  chain input {
    type filter hook input priority filter;
    iifgroup ${group} drop
    iifname "${bridge}" jump to_host
  }
  chain to_host {
    meta nfproto ipv6 drop
    ct state established,related ct direction reply accept
    ip daddr ${gateway} udp dport 53 accept
    ip daddr ${gateway} tcp dport 53 accept
    ip daddr ${gateway} icmp type echo-request accept
    jump refuse
  }
  chain output {
    type filter hook output priority filter;
    ip saddr ${gateway} meta l4proto { tcp, udp } th sport 53 ct direction original jump refuse
    meta skuid ${relayUid} ip saddr ${gateway} meta l4proto { tcp, udp } th sport 53 accept
    meta skuid ${relayUid} meta l4proto { tcp, udp } th dport 53 accept
    meta skuid ${uids.first}-${uids.last} jump refuse
  }
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr ${subnet} oifname != "${bridge}" masquerade
  }
}
`;
}
