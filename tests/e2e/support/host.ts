// Lets tests look at a machine from the host: its QEMU process, control groups, tap and firewall rules, which the
// public API does not show. This needs root, so tests that use it are skipped where the service runs without root.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { HOST_PATHS, type HostAudit, type HostInfo } from '@sandbar/contract/host-api.ts';
import { homeId, networkNames } from '@sandbar/host-agent/network/names.ts';
import { getUnixJson } from '@sandbar/service/unix-request.ts';
import { call, HOME, pidOf, qemuPidOf, until } from './service.ts';

export const IS_ROOT = process.getuid?.() === 0;
export const NETWORK = networkNames(HOME);
const PATHS = homePaths(HOME);
const CGROUP_ROOT = '/sys/fs/cgroup';

type VmRecord = {
  vmId: string;
  uid: number;
  runDir: string;
  templateKey: string | null;
  process: { pid: number } | null;
};

/** The host agent's record of the VM of a running machine. Throws when there is not exactly one. */
export function vmOf(machineId: string): VmRecord {
  const records = vmRecords().filter(({ runDir }) => runDir === runDirOf(machineId));
  assert.equal(records.length, 1, `records of the VM of ${machineId}`);
  return records[0] as VmRecord;
}

/** The records of all VMs of the service: of machines, of clones in the pool, and of templates being made. */
export function vmRecords(): VmRecord[] {
  const dir = join(HOME, 'run/vms');
  // The agent writes a record under another name first.
  const names = readdirSync(dir).filter((name) => name.endsWith('.json'));
  return names.flatMap((name) => {
    try {
      return [JSON.parse(readFileSync(join(dir, name), 'utf8')) as VmRecord];
    } catch (error) {
      // The VM ended after the folder was read, as templates do when they are finished.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  });
}

export function runDirOf(machineId: string): string {
  return join(HOME, 'run/machines', machineId);
}

export function tapOf(machineId: string): string {
  return `sbt${vmOf(machineId).vmId}`;
}

/** Whether the machine's current VM began as a clone, not with a cold boot. */
export function isClone(machineId: string): boolean {
  return readFileSync(`/proc/${qemuPidOf(machineId)}/cmdline`, 'utf8')
    .split('\0')
    .includes('-incoming');
}

/** The value of a field of `/proc/PID/task/TID/status`, one for each thread of the process. */
export function threadStatus(pid: number, field: string): string[] {
  return readdirSync(`/proc/${pid}/task`).map((thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
    return new RegExp(`^${field}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.trim() ?? `no ${field}`;
  });
}

/** The open descriptors of a process: what each number refers to, as in `/proc/PID/fd`. */
export function descriptorsOf(pid: number): Map<number, string> {
  const dir = `/proc/${pid}/fd`;
  return new Map(readdirSync(dir).map((fd) => [Number(fd), readlinkSync(join(dir, fd))]));
}

/** The path of a file in a VM's control group. The file is named `v1` in cgroup version 1 and `v2` in version 2. */
export function cgroupFile(machineId: string, controller: 'cpu' | 'memory' | 'pids', v1: string, v2: string): string {
  const group = `sandbar-${homeId(HOME)}/${vmOf(machineId).vmId}`;
  return existsSync(join(CGROUP_ROOT, 'cgroup.controllers'))
    ? join(CGROUP_ROOT, group, v2)
    : join(CGROUP_ROOT, controller, group, v1);
}

/** Process ids of every QEMU whose working directory is in the data directory of the service. */
export function qemuPids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter(
      (pid) => linkOf(`/proc/${pid}/exe`).includes('/qemu-system-') && linkOf(`/proc/${pid}/cwd`).startsWith(HOME),
    );
}

/** The `MAC IP` that each tap may send from, by name of the tap, read from the nftables rules. */
export function pinnedTaps(): Map<string, string> {
  const { stdout } = run('nft', ['list', 'set', 'bridge', NETWORK.table, 'pins']);
  const pins = stdout.matchAll(/"(\w+)" \. ([0-9a-f:]+) \. ([0-9.]+)/g);
  return new Map([...pins].map(([, tap = '', mac, ip]) => [tap, `${mac} ${ip}`]));
}

/** Names of all taps that are ports of the service's bridge, sorted. */
export function taps(): string[] {
  return readdirSync(`/sys/class/net/${NETWORK.bridge}/brif`).sort();
}

/** Runs a command on the host and returns its exit code and output. Throws when it cannot be started. */
export function run(program: string, args: readonly string[], options: { cwd?: string } = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { ...options, encoding: 'utf8' });
  if (error) throw error;
  return { status, stdout, stderr };
}

/** The sum of the sizes of all files below a folder, in bytes. */
export function bytesBelow(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

/** Asks the host agent for its audit, which compares what is on the host with its records. */
export function auditHost(): Promise<HostAudit> {
  return getUnixJson<HostAudit>(PATHS.hostAgentSocket, HOST_PATHS.audit);
}

/** Asks the host agent for its host report. */
export function hostInfo(): Promise<HostInfo> {
  return getUnixJson<HostInfo>(PATHS.hostAgentSocket, HOST_PATHS.host);
}

/**
 * Sends `signal` to processes of the service, all at once. Resolves when the supervisor has restarted them, the API
 * answers, and the control plane is connected to the host agent.
 */
export async function restart(
  names: readonly ('host-agent' | 'control-plane')[],
  signal: NodeJS.Signals,
): Promise<void> {
  const pids = names.map((name) => pidOf(name));
  for (const pid of pids) process.kill(pid, signal);
  for (const [at, name] of names.entries()) await until(`a new ${name}`, () => pidOf(name) !== pids[at]);
  await until('the service answers', async () => (await call('GET', '/v1/machines')).status === 200);
  await until('the control plane has its host', async () => {
    const { hosts } = await getUnixJson<{ hosts: HostSummary[] }>(PATHS.adminSocket, '/admin/hosts');
    return hosts.every(({ state }) => state === 'ready');
  });
}

/** The target of a symbolic link in /proc, or an empty string when the process has ended. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
