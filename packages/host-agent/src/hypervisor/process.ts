// Facts about processes from /proc: whether one lives, what it runs, where, and since when. A pid alone proves nothing,
// because pids are used again.
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
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

/** Every QEMU of this system whose working directory is, or was when it was started, below `dir`. */
export function findQemuBelow(dir: string): ProcessInfo[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => processInfo(Number(name)) ?? [])
    .filter((info) => info.cwd.startsWith(`${dir}/`) && isQemu(info));
}

/**
 * Whether a QEMU works in that very directory. By device and inode: a directory that was renamed keeps its old name for a
 * process in a mount namespace of its own.
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
