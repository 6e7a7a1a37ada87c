// Reads facts about processes from /proc: whether a process is alive, which program it runs, its working directory and
// its start time. A pid alone does not identify a process, because the kernel reuses pids.
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

export type ProcessInfo = { pid: number; executable: string; cwd: string; startTicks: string };

/**
 * Returns facts about a live process. Returns undefined when the process is gone, is a zombie, or may not be inspected.
 */
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

/**
 * Lists all QEMU processes of this host whose working directory is below `dir`. It includes processes whose directory
 * was deleted, and jailed ones whose directory was renamed, because /proc shows the old path for both.
 */
export function findQemuBelow(dir: string): ProcessInfo[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => processInfo(Number(name)) ?? [])
    .filter((info) => info.cwd.startsWith(`${dir}/`) && isQemu(info));
}

/**
 * Whether the process is a QEMU whose working directory is `dir`. Compares device and inode, because /proc shows the
 * old path of a renamed directory for a process in its own mount namespace.
 */
export function isWorkingIn(info: ProcessInfo, dir: string): boolean {
  try {
    const [actual, expected] = [statSync(`/proc/${info.pid}/cwd/.`), statSync(dir)];
    return isQemu(info) && actual.dev === expected.dev && actual.ino === expected.ino;
  } catch {
    return false;
  }
}

function isQemu(info: ProcessInfo): boolean {
  return basename(info.executable).startsWith('qemu-system-');
}

/** Whether the process is still alive. The start time distinguishes it from a newer process with the same pid. */
export function isAlive(info: ProcessInfo): boolean {
  return processInfo(info.pid)?.startTicks === info.startTicks;
}

/**
 * Resolves when the process is gone or `signal` aborts. Polls, because no event announces the end of a process that is
 * not our child.
 */
export async function waitForExit(info: ProcessInfo, signal?: AbortSignal): Promise<void> {
  while (isAlive(info) && !signal?.aborted) await delay(20);
}

/** Sends SIGKILL unless the pid belongs to another process by now, and waits until the process is gone. */
export async function killProcess(info: ProcessInfo): Promise<void> {
  if (isAlive(info)) process.kill(info.pid, 'SIGKILL');
  await waitForExit(info);
}
