// What the network of a data directory is called on its host: named after the directory, so two services share nothing,
// and whoever looks for what was left behind finds it by name.
import { createHash } from 'node:crypto';

const TAP_PREFIX = 'sbt';
const VM_ID = /^[0-9a-f]{12}$/;

export type NetworkNames = {
  /** An interface name may have 15 characters. */
  bridge: string;
  /** Of the nftables tables, one a family. */
  table: string;
  /** Interface group of the taps: how rules tell our taps from those of a service beside us. */
  group: number;
};

/** Eight hexadecimal digits that stand for a data directory wherever its host needs a short name of it. */
export function homeId(home: string): string {
  return createHash('sha256').update(home).digest('hex').slice(0, 8);
}

/** The names of the service in `home`. */
export function networkNames(home: string): NetworkNames {
  const id = homeId(home);
  // 28 bits, all of them from the id; group 0 is everybody's.
  return { bridge: `sbr${id}`, table: `sandbar_${id}`, group: (Number.parseInt(id, 16) >>> 4) + 1 };
}

/** The tap of a VM: with 12 hexadecimal characters of id, its name has exactly the 15 that are allowed. */
export function tapOf(vmId: string): string {
  if (!VM_ID.test(vmId)) throw new Error(`"${vmId}" is no VM id`);
  return `${TAP_PREFIX}${vmId}`;
}

/** The VM of a tap; undefined when it is no tap of ours by its name. */
export function vmIdOf(tapName: string): string | undefined {
  const vmId = tapName.slice(TAP_PREFIX.length);
  return tapName.startsWith(TAP_PREFIX) && VM_ID.test(vmId) ? vmId : undefined;
}
