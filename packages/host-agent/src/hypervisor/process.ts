// Facts about processes from /proc: whether one lives, what it runs, where, and since when. A pid alone proves nothing,
// because pids are used again.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

export type ProcessInfo = { pid: number; executable: string; cwd: string; startTicks: string };

/** Facts about a live process, or undefined when it is gone (a zombie counts as gone) or not ours to look at. */
export function processInfo(pid: number): ProcessInfo | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    return {
      pid,
      executable: readlinkSync(`/proc/${pid}/exe`).replace(/ \(deleted\)$/, ''),
      cwd: readlinkSync(`/proc/${pid}/cwd`).replace(/ \(deleted\)$/, ''),
      startTicks: fields[19] ?? '',
    };
  } catch {
    return undefined;
  }
}

/** Every QEMU of this system whose working directory is a direct child of `parentDir`, by that child's name. */
export function findQemuBelow(parentDir: string): Map<string, ProcessInfo> {
  const found = new Map<string, ProcessInfo>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const info = processInfo(Number(name));
    if (!info?.cwd.startsWith(`${parentDir}/`) || !basename(info.executable).startsWith('qemu-system-')) continue;
    found.set(info.cwd.slice(parentDir.length + 1), info);
  }
  return found;
}

/** Whether the very process that `info` describes still lives. */
export function isAlive(info: ProcessInfo): boolean {
  return processInfo(info.pid)?.startTicks === info.startTicks;
}

/** Resolves when the process is gone; for processes that are not children, which no event announces. */
export async function waitForExit(info: ProcessInfo, signal?: AbortSignal): Promise<void> {
  while (isAlive(info) && !signal?.aborted) await delay(20);
}

/** Sends KILL to exactly the process that `info` describes, and waits until it is gone. */
export async function killProcess(info: ProcessInfo): Promise<void> {
  if (isAlive(info)) process.kill(info.pid, 'SIGKILL');
  await waitForExit(info);
}
