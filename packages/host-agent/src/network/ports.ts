// Connects taps to the bridge. Each change is one run of `ip` with several lines. They are ordered so that a run that
// is cut short leaves a port that passes no packets.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { runCommand } from '../run-command.ts';

/**
 * Makes the bridge forward frames to the 802.1D group addresses (01:80:C2:00:00:0x). By default the bridge handles such
 * frames itself: it learns their sender and delivers them to the host past its packet filter. When told to forward
 * them, it runs the filter, which drops them. Bit x stands for address x. Pause frames (address 1) cannot be forwarded
 * and are always dropped.
 */
const FORWARD_GROUP_ADDRESSES = 0xfffd;

const INTERFACES = '/sys/class/net';

export function linkExists(name: string): boolean {
  return existsSync(`${INTERFACES}/${name}`);
}

/**
 * Makes a tap that only `uid` may open, as a bridge port isolated from all other ports. The host has no address on the
 * tap, so the host itself sends nothing there. A tap of another owner is replaced. Throws CommandError.
 */
export async function makePort(tap: string, port: { bridge: string; group: number; uid: number }): Promise<void> {
  const owner = ownerOf(tap);
  const mustMake = !linkExists(tap) || (owner !== undefined && owner !== port.uid);
  await ipBatch([
    ...(mustMake && owner !== undefined ? [`link delete dev ${tap}`] : []),
    ...(mustMake ? [`tuntap add dev ${tap} mode tap user ${port.uid}`] : []),
    ...(hasIpv6() ? [`link set dev ${tap} addrgenmode none`] : []),
    `link set dev ${tap} group ${port.group}`,
    `link set dev ${tap} master ${port.bridge}`,
    `link set dev ${tap} type bridge_slave isolated on group_fwd_mask ${FORWARD_GROUP_ADDRESSES}`,
    `link set dev ${tap} up`,
  ]);
}

/**
 * Removes the tap, which also removes what the bridge learnt from it, and deletes the host's neighbour entry of
 * `address`. Throws CommandError.
 */
export async function removePort(tap: string, bridge: string, address: string | undefined): Promise<void> {
  const lines = [
    ...(linkExists(tap) ? [`link delete dev ${tap}`] : []),
    ...(address !== undefined && linkExists(bridge) ? [`neigh flush to ${address} dev ${bridge}`] : []),
  ];
  if (lines.length > 0) await ipBatch(lines);
}

/** Removes the bridge and all its taps. Throws CommandError. */
export async function removeLinks({ bridge, group }: { bridge: string; group: number }): Promise<void> {
  for (const tap of portsOf(group)) await removePort(tap, bridge, undefined);
  if (linkExists(bridge)) await ipBatch([`link delete dev ${bridge}`]);
}

/** Returns the names of the interfaces in a group. */
export function portsOf(group: number): string[] {
  return readdirSync(INTERFACES).filter((name) => readNumber(`${INTERFACES}/${name}/netdev_group`) === group);
}

export function hasIpv6(): boolean {
  return existsSync('/proc/sys/net/ipv6');
}

export async function ipBatch(lines: readonly string[]): Promise<void> {
  await runCommand('ip', ['-batch', '-'], { input: `${lines.join('\n')}\n` });
}

/** Returns the uid that may open a tap; undefined when there is no such tap. */
function ownerOf(tap: string): number | undefined {
  return readNumber(`${INTERFACES}/${tap}/owner`);
}

function readNumber(file: string): number | undefined {
  try {
    return Number(readFileSync(file, 'utf8'));
  } catch {
    // The interface is gone, or has no such property.
    return undefined;
  }
}
