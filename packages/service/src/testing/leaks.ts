// What a service that was stopped must not leave: processes, mounts, network interfaces.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mountPointOf } from '../supervise/launch.ts';
import { startTimeOf } from '../supervise/process-identity.ts';

const INTERFACES = '/sys/class/net';
/** How the host agent names its bridges and taps. */
const OURS = /^(sbr|sbt)/;

/** Interfaces of services, ours or another's, that are there now. */
export function listInterfaces(): ReadonlySet<string> {
  return new Set(readdirSync(INTERFACES).filter((name) => OURS.test(name)));
}

/** A line for each thing of the data directory that is left; `before`: the interfaces that were there before it began. */
export function describeLeaks(home: string, before: ReadonlySet<string>): string[] {
  return [...leftProcesses(home), ...leftMounts(home), ...leftInterfaces(before)];
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

/** A new bridge with no machine on it, or a tap on no bridge: those of a service that runs beside us are in use. */
function leftInterfaces(before: ReadonlySet<string>): string[] {
  return [...listInterfaces()]
    .filter((name) => !before.has(name) && !existsSync(`${INTERFACES}/${name}/master`))
    .filter((name) => {
      const ports = `${INTERFACES}/${name}/brif`;
      return !existsSync(ports) || readdirSync(ports).length === 0;
    })
    .map((name) => `network interface ${name}`);
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process is gone, which is all right.
    return '';
  }
}
