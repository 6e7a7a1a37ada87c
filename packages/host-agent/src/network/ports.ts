// Taps as ports of the bridge. Each change of a port is one run of `ip`, whose lines are ordered so that a run that is
// cut short leaves a port that passes nothing.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { runCommand } from '../run-command.ts';

/**
 * A bridge takes frames to the group addresses of 802.1D (01:80:C2:00:00:0x) out of the way: it learns their sender and
 * gives them to the host as the tap's own, past its packet filter. Told to forward them, it shows them to the filter,
 * which drops them. Bit x is address x; pause frames (1) cannot be forwarded and are always dropped.
 */
const FORWARD_GROUP_ADDRESSES = 0xfffd;

const INTERFACES = '/sys/class/net';

export function linkExists(name: string): boolean {
  return existsSync(`${INTERFACES}/${name}`);
}

/**
 * Makes a tap that only `uid` may open and the bridge's port of it, cut off from all other ports. The host has no
 * address on it, so the host itself says nothing there either. A tap of another owner is made anew.
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

/** Removes the tap, and with it what the bridge learnt of it; and what the host remembers of `address`. */
export async function removePort(tap: string, bridge: string, address: string | undefined): Promise<void> {
  const lines = [
    ...(linkExists(tap) ? [`link delete dev ${tap}`] : []),
    ...(address !== undefined && linkExists(bridge) ? [`neigh flush to ${address} dev ${bridge}`] : []),
  ];
  if (lines.length > 0) await ipBatch(lines);
}

/** The interfaces of a group. */
export function portsOf(group: number): string[] {
  return readdirSync(INTERFACES).filter((name) => readNumber(`${INTERFACES}/${name}/netdev_group`) === group);
}

export function hasIpv6(): boolean {
  return existsSync('/proc/sys/net/ipv6');
}

export async function ipBatch(lines: readonly string[]): Promise<void> {
  await runCommand('ip', ['-batch', '-'], { input: `${lines.join('\n')}\n` });
}

/** The uid that may open a tap; undefined: no such interface, or no tap. */
function ownerOf(tap: string): number | undefined {
  return readNumber(`${INTERFACES}/${tap}/owner`);
}

function readNumber(file: string): number | undefined {
  try {
    return Number(readFileSync(file, 'utf8'));
  } catch {
    // The interface is gone, or is of a kind without this property.
    return undefined;
  }
}
