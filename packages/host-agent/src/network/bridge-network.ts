// The network of a host with root: a bridge with the gateway's address, an isolated bridge port for each VM, and our
// own nftables tables that decide which address a VM may use and what it may reach. Everything is named after the data
// directory, so two services never share it. The network stays when the agent dies; the next agent replaces the rules
// in one transaction.
import { writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import type { Log } from '@sandbar/logging/log.ts';
import type { Nic } from '../hypervisor/driver.ts';
import { reservedUids, uidRange } from '../jail/uid-pool.ts';
import { connectPort } from './connect-port.ts';
import { forgetConnections, forgetDeparted } from './connections.ts';
import { NameRelay } from './dns/name-relay.ts';
import { Firewall } from './firewall.ts';
import { Forwarding, forwardingRecord } from './forwarding.ts';
import { readHostRoutes } from './host-routes.ts';
import { type NetworkNames, networkNames, tapOf, vmIdOf } from './names.ts';
import type { HostNetwork } from './network.ts';
import { hasIpv6, ipBatch, linkExists, makePort, portsOf, removeLinks, removePort } from './ports.ts';
import type { HostFacts } from './rules.ts';
import { isInSubnet, macOfIp, PLACEHOLDER_MAC, type Subnet } from './subnet.ts';
import { uplinkMtu } from './uplink.ts';

export type BridgeOptions = {
  /** Private addresses of the machines that already run, by VM id. */
  assigned: ReadonlyMap<string, string>;
  /** CIDR ranges that machines may reach although they are private. */
  allow: readonly string[];
  /** Megabits per second that each machine may send, and also receive; undefined: no limit. */
  rateMbit: number | undefined;
  /** How many connections of one machine the host tracks at once. */
  connections: number;
  log: Log;
};

/** How often the rules are adapted to changes of the host's own network. */
const FOLLOW_MS = 10_000;

/** The user that may open a tap when its VM has no user of its own. */
const ROOT = 0;

export class BridgeNetwork implements HostNetwork {
  readonly kind = 'bridge';
  readonly subnet: string;
  readonly prefix: number;
  readonly gateway: string;
  readonly nameServers: readonly string[];
  readonly mtu = uplinkMtu();
  readonly #names: NetworkNames;
  readonly #firewall: Firewall;
  /**
   * The addresses of VMs whose detach has begun but not ended, by tap. When a failed detach is repeated, the firewall
   * no longer knows the address.
   */
  readonly #detaching = new Map<string, string>();
  readonly #forwarding: Forwarding;
  readonly #follower: NodeJS.Timeout;
  #following: Promise<void> = Promise.resolve();
  #relay: NameRelay | undefined;

  private constructor(
    names: NetworkNames,
    subnet: Subnet,
    { firewall, forwarding, relay, log }: { firewall: Firewall; forwarding: Forwarding; relay: NameRelay; log: Log },
  ) {
    this.subnet = subnet.cidr;
    this.prefix = subnet.prefix;
    this.gateway = subnet.gateway;
    this.nameServers = [subnet.gateway];
    this.#names = names;
    this.#firewall = firewall;
    this.#forwarding = forwarding;
    this.#relay = relay;
    const follow = () => {
      this.#following = this.followHost().catch((err: unknown) =>
        log.error({ err }, 'the packet filter does not follow the host'),
      );
    };
    this.#follower = setInterval(follow, FOLLOW_MS).unref();
  }

  /**
   * Makes the bridge, its rules and its name relay, or takes over existing ones without an interruption for the
   * machines in `options.assigned`. `nameServers` returns the servers that the name relay asks.
   */
  static async create(
    home: string,
    subnet: Subnet,
    nameServers: () => readonly string[],
    options: BridgeOptions,
  ): Promise<BridgeNetwork> {
    const names = networkNames(home);
    const rules = {
      ...names,
      subnet: subnet.cidr,
      gateway: subnet.gateway,
      allow: options.allow,
      rateMbit: options.rateMbit,
      connections: options.connections,
      uids: uidRange(home),
      relayUid: reservedUids(home).nameRelay,
    };
    const assigned = new Map([...options.assigned].map(([vmId, ip]) => [tapOf(vmId), ip]));
    const forwarding = new Forwarding(names.bridge, forwardingRecord(home));
    const firewall = await Firewall.create(rules, factsOf(forwarding), assigned);
    await ensureBridge(names.bridge, subnet);
    forwarding.open();
    await forgetDeparted(subnet.cidr, new Set([subnet.gateway, ...options.assigned.values()]));
    const relay = await NameRelay.start({ home, address: subnet.gateway, nameServers, log: options.log });
    return new BridgeNetwork(names, subnet, { firewall, forwarding, relay, log: options.log });
  }

  async ready(): Promise<void> {
    await this.#relay?.ready();
  }

  /** The pid of the command that runs the name relay. Undefined while none runs. */
  get relayPid(): number | undefined {
    return this.#relay?.pid;
  }

  /**
   * Brings the rules in line with the host's own network: denies machines the networks that the host is in now, and
   * turns on forwarding on the interfaces that the host has now. Runs every 10 s by itself. Throws CommandError.
   */
  async followHost(): Promise<void> {
    await this.#firewall.follow(factsOf(this.#forwarding));
    this.#forwarding.open();
  }

  async attach(vmId: string, uid: number | undefined): Promise<Nic> {
    const tapName = tapOf(vmId);
    const { bridge, group } = this.#names;
    await makePort(tapName, { bridge, group, uid: uid ?? ROOT });
    return { kind: 'tap', mac: PLACEHOLDER_MAC, tapName };
  }

  async assign(vmId: string, privateIp: string): Promise<void> {
    if (!isInSubnet(privateIp, this.subnet)) throw new Error(`${privateIp} is no address of ${this.subnet}`);
    const stale = await this.#firewall.assign(tapOf(vmId), privateIp);
    await Promise.all(stale.map(forgetConnections));
  }

  async detach(vmId: string): Promise<void> {
    const tap = tapOf(vmId);
    const address = this.#firewall.addressOf(tap) ?? this.#detaching.get(tap);
    if (address !== undefined) this.#detaching.set(tap, address);
    // Remove the rules first. Then no packet passes any more, so the kernel tracks no new connections of the address.
    await this.#firewall.release(tap);
    await removePort(tap, this.#names.bridge, address);
    if (address !== undefined) await forgetConnections(address);
    this.#detaching.delete(tap);
  }

  connect(privateIp: string, port: number): Promise<Socket | undefined> {
    return connectPort(privateIp, port);
  }

  async listVmIds(): Promise<string[]> {
    const taps = [...portsOf(this.#names.group), ...(await this.#firewall.listTaps())];
    return [...new Set(taps.flatMap((tap) => vmIdOf(tap) ?? []))];
  }

  async close(): Promise<void> {
    clearInterval(this.#follower);
    await this.#following;
    await this.#relay?.close();
    this.#relay = undefined;
  }

  async remove(): Promise<void> {
    await this.close();
    await removeLinks(this.#names);
    this.#forwarding.restore();
    await this.#firewall.remove();
    await forgetDeparted(this.subnet, new Set());
  }
}

function factsOf(forwarding: Forwarding): HostFacts {
  return { networks: readHostRoutes().attached, claimed: forwarding.claim() };
}

/**
 * Creates the bridge if it is missing, and gives it a fixed MAC. Otherwise the bridge would take the MAC of one of its
 * ports, and machines would lose their gateway whenever that MAC changes.
 */
async function ensureBridge(bridge: string, subnet: Subnet): Promise<void> {
  if (!linkExists(bridge)) await ipBatch([`link add name ${bridge} type bridge mcast_snooping 0`]);
  // Without this a machine could reach the host through the bridge's link-local IPv6 address.
  if (hasIpv6()) writeFileSync(`/proc/sys/net/ipv6/conf/${bridge}/disable_ipv6`, '1');
  await ipBatch([
    `link set dev ${bridge} address ${macOfIp(subnet.gateway)}`,
    `address replace ${subnet.gateway}/${subnet.prefix} dev ${bridge}`,
    `link set dev ${bridge} up`,
  ]);
}
