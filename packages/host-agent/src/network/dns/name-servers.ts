// Knows the host's name servers and notices when they change, as they do when the host changes its network.
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';

const RESOLV_CONF = '/etc/resolv.conf';
/** The file is checked for changes at most once in this time. */
const CHECK_MS = 1000;
/** What the C library uses when the file names no server (resolv.conf(5)). */
const DEFAULT_SERVERS = ['127.0.0.1'];

export class HostNameServers {
  readonly #path: string;
  readonly #now: () => number;
  #checkedAt = Number.NEGATIVE_INFINITY;
  #version = '';
  #servers: readonly string[] = DEFAULT_SERVERS;

  /** `now`: a clock in milliseconds. */
  constructor(path: string = RESOLV_CONF, now: () => number = () => performance.now()) {
    this.#path = path;
    this.#now = now;
  }

  /**
   * Returns the addresses that the file names now. While the file cannot be read, returns the last known addresses.
   * With systemd-resolved this is a local address that only the host itself can query.
   */
  current(): readonly string[] {
    const now = this.#now();
    if (now - this.#checkedAt < CHECK_MS) return this.#servers;
    this.#checkedAt = now;
    try {
      // Programs often replace the file instead of changing it, so compare its inode too.
      const { ino, size, mtimeNs } = statSync(this.#path, { bigint: true });
      const version = `${ino} ${size} ${mtimeNs}`;
      if (version === this.#version) return this.#servers;
      this.#servers = readNameServers(readFileSync(this.#path, 'utf8'));
      this.#version = version;
    } catch {
      // A program that rewrites the file may have removed it for a moment. Keep the servers that were read last.
    }
    return this.#servers;
  }
}

/** Returns the name servers in a resolv.conf. Lines with anything but an IP address are ignored. */
export function readNameServers(resolvConf: string): readonly string[] {
  const named = [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].map((match) => match[1] ?? '');
  const found = named.filter((address) => isIP(address) !== 0);
  return found.length > 0 ? found : DEFAULT_SERVERS;
}
