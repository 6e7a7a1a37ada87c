// What the packet filter says about machines, as text for nft. Two tables of one name: in the family `bridge` stands who
// a NIC may speak as, because ARP, MACs and what goes from port to port are only seen there; in `inet` stands what a
// machine may reach, because addresses are translated and connections are known only there. A `drop` of ours is final,
// an `accept` only ends our own chain: a firewall of the host that drops forwarded packets by default goes on doing so,
// and only its owner can let the bridge through. We never touch a table of another's.
import { macOfIp } from './subnet.ts';

export type RuleOptions = {
  bridge: string;
  table: string;
  /** Interface group of the taps. */
  group: number;
  /** CIDR of the machines. */
  subnet: string;
  gateway: string;
  /** The uids that VMs run as. */
  vmUids: { first: number; last: number };
  /** CIDR ranges that may be reached though they are private. */
  allow: readonly string[];
  /** Megabits a second for each machine and direction; undefined: no limit. */
  rateMbit: number | undefined;
};

/** Who may speak: addresses by tap. */
export type Assigned = ReadonlyMap<string, string>;

/**
 * Never the internet, by RFC 6890 and RFC 1112: this network, private, shared, loopback, link-local (where clouds keep
 * their credentials), protocol assignments, benchmarks, multicast, reserved and broadcast.
 */
const DENIED_RANGES = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/4',
  '240.0.0.0/4',
] as const;

/**
 * What may pass at once above the bytes of a second at full rate, which the kernel always lets through (nft_limit_init):
 * four of the largest packets that a tap hands over, for rates below one of them.
 */
export const BURST_BYTES = 4 * 64 * 1024;

/** Removes our tables, or does nothing; `ip` is where an earlier version had its own. */
export function withoutTables(table: string): string {
  return ['ip', 'inet', 'bridge']
    .map((family) => `table ${family} ${table}\ndelete table ${family} ${table}\n`)
    .join('');
}

/** Replaces our tables as a whole, with everyone who may speak: one transaction, so there is no moment without rules. */
export function wholeTables(options: RuleOptions, assigned: Assigned): string {
  return withoutTables(options.table) + bridgeTable(options, assigned) + inetTable(options);
}

/**
 * Lets more taps speak. `create` fails where `add` would pass over something that should not be there. `echoes` is what
 * nft says of it when asked to; its spaces tell it from the command itself, should a line editor repeat that.
 */
export function additions(table: string, added: Assigned): { command: string; echoes: string[] } {
  const { pins, addresses } = elements(added);
  return {
    command:
      `create element bridge ${table} pins {${pins}};` + `create element bridge ${table} addresses {${addresses}}\n`,
    echoes: [...added].map(([tap, ip]) => ` element bridge ${table} addresses { "${tap}" . ${ip} }\n`),
  };
}

/** Takes the word from taps. */
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
 * All frames of a tap pass `prerouting`, before the bridge learns from them; those to the group addresses of 802.1D only
 * because the port is told to forward them (see ports.ts). `input` and `forward` are second locks. What goes to a tap is checked too, because a bridge floods what it has not learnt to every port.
 */
function bridgeTable({ table, group, gateway, rateMbit }: RuleOptions, assigned: Assigned): string {
  const { pins, addresses } = elements(assigned);
  const given = (list: string) => (list === '' ? '' : `elements = { ${list} }`);
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

/**
 * A bucket a tap and direction, made by its first packet and forgotten when it is quiet. The chains are their own, after
 * the ones that drop: what is flooded to a tap, and what a machine may not send, is not counted.
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
 * What a machine sends is judged by where it goes, packet by packet, never by a connection that stood before: a range
 * that is no longer allowed ends at once. Back come only replies. A refusal is answered, so that programs fail at once
 * instead of hanging; the kernel limits the rate of ICMP, so TCP gets a reset. A QEMU that was taken over has the host's
 * network namespace, where its tap is; IP sockets of its own reach nothing, not even the host's loopback. Abstract Unix
 * sockets of that namespace pass no filter and are not covered.
 */
function inetTable({ table, bridge, group, subnet, gateway, vmUids, allow }: RuleOptions): string {
  return `
table inet ${table} {
  set allowed {
    type ipv4_addr
    flags interval
    auto-merge
    ${allow.length === 0 ? '' : `elements = { ${allow.join(', ')} }`}
  }
  set denied {
    type ipv4_addr
    flags interval
    elements = { ${DENIED_RANGES.join(', ')} }
  }
  chain forward {
    type filter hook forward priority filter;
    iifgroup ${group} drop
    iifname "${bridge}" jump from_machine
    oifname "${bridge}" jump to_machine
  }
  chain from_machine {
    meta nfproto ipv6 drop
    ip saddr != ${subnet} drop
    oifname "${bridge}" jump refuse
    ct state invalid drop
    ip daddr @allowed accept
    ip daddr @denied jump refuse
    accept
  }
  chain to_machine {
    ct state established,related accept
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
    meta skuid ${vmUids.first}-${vmUids.last} jump refuse
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
