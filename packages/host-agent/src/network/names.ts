// What the network of a data directory is called on its host: named after the directory, so two services share nothing,
// and whoever looks for what was left behind finds it by name.
import { createHash } from 'node:crypto';

/** The bridge (an interface name may have 15 characters) and the nftables table of the service in `home`. */
export function networkNames(home: string): { bridge: string; table: string } {
  const id = createHash('sha256').update(home).digest('hex').slice(0, 8);
  return { bridge: `sbr${id}`, table: `sandbar_${id}` };
}
