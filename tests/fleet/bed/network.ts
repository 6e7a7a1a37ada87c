// The network of the fleet test: a bridge with the address of the control plane, and a network namespace for each host.
// A host can be cut off: then all packets between it and the control plane are dropped. It can also be slow: then only
// some of them are.
import { execFileSync } from 'node:child_process';

/** A range that no other test and no host agent uses. */
const PREFIX = '10.213.7';
/** The bridge, the namespaces, the cables and the nftables table have names with this beginning. */
const NAME = 'sbfleet';
/** Which packets of a slow host are dropped, in each direction: one in ten, and all above a rate. */
const LOSS = 'numgen random mod 10 == 0';
const RATE = 'limit rate over 128 kbytes/second burst 64 kbytes';

export class FleetNetwork {
  /** The address of the control plane, of the database and of the balancer. */
  readonly controlAddress = `${PREFIX}.1`;

  /** Makes the bridge and a namespace for each of `hosts` hosts. Removes what a killed run has left. */
  static create(hosts: number): FleetNetwork {
    const network = new FleetNetwork(hosts);
    network.remove();
    ip('link', 'add', NAME, 'type', 'bridge');
    ip('addr', 'add', `${network.controlAddress}/24`, 'dev', NAME);
    ip('link', 'set', NAME, 'up');
    for (let host = 1; host <= hosts; host++) network.#addHost(host);
    nft(`add table inet ${NAME}`);
    nft(`add set inet ${NAME} cut { type ipv4_addr; }`);
    nft(`add set inet ${NAME} slow { type ipv4_addr; }`);
    nft(`add chain inet ${NAME} input { type filter hook input priority -10; }`);
    nft(`add chain inet ${NAME} output { type filter hook output priority -10; }`);
    nft(`add rule inet ${NAME} input ip saddr @cut drop`);
    nft(`add rule inet ${NAME} output ip daddr @cut drop`);
    for (const drop of [LOSS, RATE]) {
      nft(`add rule inet ${NAME} input ip saddr @slow ${drop} drop`);
      nft(`add rule inet ${NAME} output ip daddr @slow ${drop} drop`);
    }
    return network;
  }

  readonly #hosts: number;

  private constructor(hosts: number) {
    this.#hosts = hosts;
  }

  addressOf(host: number): string {
    return `${PREFIX}.${10 + host}`;
  }

  /** The command that runs another command in the namespace of a host. */
  prefixOf(host: number): string[] {
    return ['ip', 'netns', 'exec', namespaceOf(host)];
  }

  /** Drops all packets between the host and the control plane from now on. Connections stay open, and are silent. */
  cut(host: number): void {
    nft(`add element inet ${NAME} cut { ${this.addressOf(host)} }`);
  }

  heal(host: number): void {
    nft(`delete element inet ${NAME} cut { ${this.addressOf(host)} }`);
  }

  /** Drops a part of the packets between the host and the control plane from now on. */
  slow(host: number): void {
    nft(`add element inet ${NAME} slow { ${this.addressOf(host)} }`);
  }

  hasten(host: number): void {
    nft(`delete element inet ${NAME} slow { ${this.addressOf(host)} }`);
  }

  /** Removes everything. Does nothing for parts that do not exist. */
  remove(): void {
    attempt(() => nft(`delete table inet ${NAME}`));
    for (let host = 1; host <= this.#hosts; host++) attempt(() => ip('netns', 'delete', namespaceOf(host)));
    attempt(() => ip('link', 'delete', NAME));
  }

  #addHost(host: number): void {
    const [namespace, cable] = [namespaceOf(host), `${NAME}${host}`];
    ip('netns', 'add', namespace);
    ip('link', 'add', cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
    ip('link', 'set', cable, 'master', NAME, 'up');
    const inside = (...args: string[]) => ip('-n', namespace, ...args);
    inside('addr', 'add', `${this.addressOf(host)}/24`, 'dev', 'eth0');
    inside('link', 'set', 'lo', 'up');
    inside('link', 'set', 'eth0', 'up');
    inside('route', 'add', 'default', 'via', this.controlAddress);
  }
}

const namespaceOf = (host: number): string => `${NAME}-${host}`;

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

function nft(command: string): void {
  execFileSync('nft', [command], { stdio: ['ignore', 'ignore', 'pipe'] });
}

function attempt(action: () => void): void {
  try {
    action();
  } catch {
    // It does not exist.
  }
}
