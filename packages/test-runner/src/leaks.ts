// Finds what a stopped service left behind: processes, mounts, network interfaces and firewall rules.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { networkNames } from '@sandbar/host-agent/network/names.ts';
import { mountPointOf } from '@sandbar/service/supervise/launch.ts';
import { startTimeOf } from '@sandbar/service/supervise/process-identity.ts';

const INTERFACES = '/sys/class/net';
/** Matches the names that the host agent gives to its taps. */
const TAP = /^sbt/;

/** Returns the names of all taps on this host, of this service and of others. */
export function listTaps(): ReadonlySet<string> {
  return new Set(readdirSync(INTERFACES).filter((name) => TAP.test(name)));
}

/**
 * Returns a line for each leftover of the service with data directory `home`. `before` holds the taps from before the
 * service started.
 */
export function describeLeaks(home: string, before: ReadonlySet<string>): string[] {
  return [...leftProcesses(home), ...leftMounts(home), ...leftNetwork(home), ...leftTaps(before)];
}

function leftProcesses(home: string): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid && startTimeOf(Number(name)) !== undefined)
    .flatMap((pid) => {
      const command = read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim();
      const names = [command, read(`/proc/${pid}/environ`)];
      const isOurs = names.some((text) => text.includes(home) || text.includes(mountPointOf(home)));
      return isOurs ? [`process ${pid}: ${command.slice(0, 200)}`] : [];
    });
}

function leftMounts(home: string): string[] {
  return read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((at) => at.startsWith(home) || at.startsWith(mountPointOf(home)))
    .map((at) => `mount ${at}`);
}

function leftNetwork(home: string): string[] {
  const { bridge, table, group } = networkNames(home);
  // nft prints one table on each line: `table FAMILY NAME`. Without root its output is empty.
  const tables = (spawnSync('nft', ['list', 'tables'], { encoding: 'utf8' }).stdout ?? '').split('\n');
  return [
    ...(existsSync(`${INTERFACES}/${bridge}`) ? [`bridge ${bridge}`] : []),
    ...tables.filter((line) => line.endsWith(` ${table}`)).map((line) => `nftables ${line}`),
    ...[...listTaps()]
      .filter((name) => read(`${INTERFACES}/${name}/netdev_group`).trim() === String(group))
      .map((name) => `tap ${name} of ${home}`),
  ];
}

/** Finds new taps without a bridge. A tap with a bridge belongs to another service that runs at the same time. */
function leftTaps(before: ReadonlySet<string>): string[] {
  return [...listTaps()]
    .filter((name) => !before.has(name) && !existsSync(`${INTERFACES}/${name}/master`))
    .map((name) => `tap ${name}`);
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process ended in the meantime.
    return '';
  }
}
