// What root on the service's host sees of a machine: its QEMU, its control groups, its tap, its rules. For tests of what
// the public API cannot show; they are skipped where the service runs without root.
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

/** What the host agent keeps of the VM of a machine. */
export function vmOf(machineId: string): VmRecord {
  const records = vmRecords().filter(({ runDir }) => runDir === runDirOf(machineId));
  assert.equal(records.length, 1, `records of the VM of ${machineId}`);
  return records[0] as VmRecord;
}

/** Of all VMs of the service: machines', pooled clones' and those that become templates. */
export function vmRecords(): VmRecord[] {
  const dir = join(HOME, 'run/vms');
  return readdirSync(dir).map((name) => JSON.parse(readFileSync(join(dir, name), 'utf8')) as VmRecord);
}

export function runDirOf(machineId: string): string {
  return join(HOME, 'run/machines', machineId);
}

export function tapOf(machineId: string): string {
  return `sbt${vmOf(machineId).vmId}`;
}

/** Whether the machine began as a clone and not as a cold boot. */
export function isClone(machineId: string): boolean {
  return readFileSync(`/proc/${qemuPidOf(machineId)}/cmdline`, 'utf8')
    .split('\0')
    .includes('-incoming');
}

/** A field of `/proc/PID/task/TID/status`, for each thread. */
export function threadStatus(pid: number, field: string): string[] {
  return readdirSync(`/proc/${pid}/task`).map((thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
    return new RegExp(`^${field}:[ \\t]*(.*)$`, 'm').exec(status)?.[1]?.trim() ?? `no ${field}`;
  });
}

/** What the descriptors of a process are, by number. */
export function descriptorsOf(pid: number): Map<number, string> {
  const dir = `/proc/${pid}/fd`;
  return new Map(readdirSync(dir).map((fd) => [Number(fd), readlinkSync(join(dir, fd))]));
}

/** The file of a VM's control group: `v1` in the hierarchy of that controller, else `v2`. */
export function cgroupFile(machineId: string, controller: 'cpu' | 'memory' | 'pids', v1: string, v2: string): string {
  const group = `sandbar-${homeId(HOME)}/${vmOf(machineId).vmId}`;
  return existsSync(join(CGROUP_ROOT, 'cgroup.controllers'))
    ? join(CGROUP_ROOT, group, v2)
    : join(CGROUP_ROOT, controller, group, v1);
}

/** Pids of every QEMU that works below the run directories of the service. */
export function qemuPids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter(
      (pid) => linkOf(`/proc/${pid}/exe`).includes('/qemu-system-') && linkOf(`/proc/${pid}/cwd`).startsWith(HOME),
    );
}

/** Taps that may speak and as whom, as the kernel's rules have it: address by tap. */
export function pinnedTaps(): Map<string, string> {
  const { stdout } = run('nft', ['list', 'set', 'bridge', NETWORK.table, 'pins']);
  const pins = stdout.matchAll(/"(\w+)" \. ([0-9a-f:]+) \. ([0-9.]+)/g);
  return new Map([...pins].map(([, tap = '', mac, ip]) => [tap, `${mac} ${ip}`]));
}

/** Those that are on the bridge. */
export function taps(): string[] {
  return readdirSync(`/sys/class/net/${NETWORK.bridge}/brif`).sort();
}

/** A command of the host to its end. */
export function run(program: string, args: readonly string[], options: { cwd?: string } = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { ...options, encoding: 'utf8' });
  if (error) throw error;
  return { status, stdout, stderr };
}

/** Bytes of all files below a folder. */
export function bytesBelow(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

/** The host agent's own comparison of what the host has with what it knows. */
export function auditHost(): Promise<HostAudit> {
  return getUnixJson<HostAudit>(PATHS.hostAgentSocket, HOST_PATHS.audit);
}

/** What the host agent says of itself. */
export function hostInfo(): Promise<HostInfo> {
  return getUnixJson<HostInfo>(PATHS.hostAgentSocket, HOST_PATHS.host);
}

/**
 * Ends processes of ours, all at the same moment, and waits until the supervisor has put others in their place and they
 * are connected.
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

/** What a link points to; empty when it, or its process, is gone. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}
