// Networking as root: a bridge with the gateway's address, a tap a machine, and one nftables table of our own that
// translates what leaves the subnet. All of it is named after the data directory, so two services never share any.
import { existsSync, writeFileSync } from 'node:fs';
import type { Nic } from '../hypervisor/driver.ts';
import { runCommand } from '../run-command.ts';
import { type DnsRelay, startDnsRelay } from './dns-relay.ts';
import { networkNames } from './names.ts';
import type { HostNetwork } from './network.ts';
import { macOfIp, type Subnet } from './subnet.ts';
import { uplinkMtu } from './uplink.ts';

export class BridgeNetwork implements HostNetwork {
  readonly kind = 'bridge';
  readonly subnet: string;
  readonly prefix: number;
  readonly gateway: string;
  readonly nameServers: readonly string[];
  readonly mtu = uplinkMtu();
  readonly bridge: string;
  readonly #table: string;
  #relay: DnsRelay | undefined;

  private constructor(home: string, subnet: Subnet) {
    const names = networkNames(home);
    this.bridge = names.bridge;
    this.#table = names.table;
    this.subnet = subnet.cidr;
    this.prefix = subnet.prefix;
    this.gateway = subnet.gateway;
    this.nameServers = [subnet.gateway];
  }

  /** Makes the bridge, its rules and its name relay, or finds them made. `upstreams`: name servers that answer for real. */
  static async create(home: string, subnet: Subnet, upstreams: readonly string[]): Promise<BridgeNetwork> {
    const network = new BridgeNetwork(home, subnet);
    await network.#ensureBridge();
    await network.#ensureRules();
    network.#relay = await startDnsRelay(subnet.gateway, upstreams);
    return network;
  }

  async attach(machineId: string, privateIp: string): Promise<Nic> {
    const tapName = tapOf(machineId);
    if (!linkExists(tapName)) await runCommand('ip', ['tuntap', 'add', 'dev', tapName, 'mode', 'tap']);
    await runCommand('ip', ['link', 'set', 'dev', tapName, 'master', this.bridge, 'up']);
    return { kind: 'tap', mac: macOfIp(privateIp), tapName };
  }

  async detach(machineId: string): Promise<void> {
    const tapName = tapOf(machineId);
    if (linkExists(tapName)) await runCommand('ip', ['link', 'delete', 'dev', tapName]);
  }

  async remove(): Promise<void> {
    await this.#relay?.close();
    await runCommand('nft', ['-f', '-'], { input: `table ip ${this.#table}\ndelete table ip ${this.#table}\n` });
    if (linkExists(this.bridge)) await runCommand('ip', ['link', 'delete', 'dev', this.bridge]);
  }

  async #ensureBridge(): Promise<void> {
    if (!linkExists(this.bridge)) await runCommand('ip', ['link', 'add', 'name', this.bridge, 'type', 'bridge']);
    // Without this a machine could reach the host through the bridge's link-local address.
    writeFileSync(`/proc/sys/net/ipv6/conf/${this.bridge}/disable_ipv6`, '1');
    await runCommand('ip', ['address', 'replace', `${this.gateway}/${this.prefix}`, 'dev', this.bridge]);
    await runCommand('ip', ['link', 'set', 'dev', this.bridge, 'up']);
    writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
  }

  /** Replaces the table as a whole, in one transaction. */
  async #ensureRules(): Promise<void> {
    const input = `
      table ip ${this.#table}
      delete table ip ${this.#table}
      table ip ${this.#table} {
        chain postrouting {
          type nat hook postrouting priority srcnat;
          ip saddr ${this.subnet} oifname != "${this.bridge}" masquerade
        }
      }`;
    await runCommand('nft', ['-f', '-'], { input });
  }
}

/** A tap's name may have 15 characters: the last 12 hex digits of a UUIDv7 are random. */
function tapOf(machineId: string): string {
  return `sbt${machineId.slice(-12)}`;
}

function linkExists(name: string): boolean {
  return existsSync(`/sys/class/net/${name}`);
}
