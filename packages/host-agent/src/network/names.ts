// Names of a data directory's network objects on its host. They derive from the directory's path, so two services share
// nothing and leftovers can be found by name.
import { createHash } from 'node:crypto';

const TAP_PREFIX = 'sbt';
const BRIDGE_PREFIX = 'sbr';
/** Matches the bridges of all services on this host, in rules of nft. */
export const ANY_BRIDGE = `${BRIDGE_PREFIX}*`;
const VM_ID = /^[0-9a-f]{12}$/;

export type NetworkNames = {
  /** At most 15 characters, as for every interface. */
  bridge: string;
  /** Name of the nftables tables, of which there is one per family. */
  table: string;
  /** Interface group of the taps. Rules use it to tell our taps from those of another service. */
  group: number;
};

/** Returns eight hex digits that identify a data directory in names on its host. */
export function homeId(home: string): string {
  return createHash('sha256').update(home).digest('hex').slice(0, 8);
}

/** Returns the names that the service in `home` uses. */
export function networkNames(home: string): NetworkNames {
  const id = homeId(home);
  // 28 bits of the id, plus 1 because every interface is in group 0 by default.
  return { bridge: `${BRIDGE_PREFIX}${id}`, table: `sandbar_${id}`, group: (Number.parseInt(id, 16) >>> 4) + 1 };
}

/** Whether an interface is the bridge of a service on this host, ours or another. */
export function isBridgeName(name: string): boolean {
  return /^[0-9a-f]{8}$/.test(name.slice(BRIDGE_PREFIX.length)) && name.startsWith(BRIDGE_PREFIX);
}

/**
 * Returns the name of a VM's tap. With the 12 hex characters of the id it has exactly the 15 characters that Linux
 * allows. Throws when `vmId` is not a VM id.
 */
export function tapOf(vmId: string): string {
  if (!VM_ID.test(vmId)) throw new Error(`"${vmId}" is no VM id`);
  return `${TAP_PREFIX}${vmId}`;
}

/** Returns the VM id in a tap's name, or undefined when the name is not one of ours. */
export function vmIdOf(tapName: string): string | undefined {
  const vmId = tapName.slice(TAP_PREFIX.length);
  return tapName.startsWith(TAP_PREFIX) && VM_ID.test(vmId) ? vmId : undefined;
}
