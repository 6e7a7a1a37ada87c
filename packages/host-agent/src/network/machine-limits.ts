// Builds the packet filter's limits on what one machine may use up of the host: entries of the connection tracking, and
// CPU time of the name relay. They are in a table of their own, because replacing a table forgets its counts. This
// table is only flushed, which removes the rules and keeps the counts. So after a restart of the agent, what a machine
// already uses still counts.
import { subnetSize } from './subnet.ts';

export type LimitOptions = {
  bridge: string;
  /** Name of the other tables (rules.ts). */
  table: string;
  /** The machines' subnet (CIDR). */
  subnet: string;
  gateway: string;
  /** How many connections of one machine the host tracks at once. */
  connections: number;
};

/**
 * Packets per second that one machine may send to the name relay. Each packet costs the relay about 10 µs, even when
 * the relay drops it. A lookup takes one packet over UDP and about six over TCP.
 */
export const RELAY_PACKETS_PER_SEC = 1000;

/** Returns the name of the table with the limits. */
export function limitsTable(table: string): string {
  return `${table}_limits`;
}

/**
 * Returns commands that create the limits or replace their rules. The chains run after those of rules.ts, so packets
 * that are dropped there do not count. The limit is part of the set's name, because each counter keeps the limit that
 * it was made with. A set has a place for each address of the subnet: a full set would let further machines pass
 * unlimited.
 */
export function machineLimits({ bridge, table, subnet, gateway, connections }: LimitOptions): string {
  const name = limitsTable(table);
  const size = subnetSize(subnet);
  return `
table inet ${name}
flush table inet ${name}
table inet ${name} {
  set connections_${connections} {
    type ipv4_addr
    size ${size}
    flags dynamic
  }
  set relay_packets {
    type ipv4_addr
    size ${size}
    flags dynamic,timeout
    timeout 1m
  }
  chain forward {
    type filter hook forward priority filter + 1;
    iifname "${bridge}" ct state new jump count_connection
  }
  chain input {
    type filter hook input priority filter + 1;
    iifname "${bridge}" ct state new jump count_connection
    iifname "${bridge}" ip daddr ${gateway} meta l4proto { tcp, udp } th dport 53 jump count_relay_packet
  }
  chain count_connection {
    add @connections_${connections} { ip saddr ct count ${connections} } return
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
  chain count_relay_packet {
    update @relay_packets { ip saddr limit rate over ${RELAY_PACKETS_PER_SEC}/second burst ${RELAY_PACKETS_PER_SEC} packets } counter drop
  }
}
`;
}
