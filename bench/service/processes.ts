// Finds the QEMU processes of a service and reads their CPU time and memory from /proc.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Linux reports process times in ticks of 10 ms. */
const TICKS_PER_SECOND = 100;

/** Process ids of the running QEMUs whose run directories are in `folder`, by the name of the run directory. */
export function qemuPids(folder: string): Map<string, number> {
  const names = readIfThere(() => readdirSync(folder)) ?? [];
  return new Map(
    names.flatMap((name) => {
      const text = readIfThere(() => readFileSync(join(folder, name, 'qemu.pid'), 'utf8'));
      const pid = Number.parseInt(text ?? '', 10);
      return pid > 0 && startOf(pid) !== undefined ? [[name, pid] as const] : [];
    }),
  );
}

/** The CPU time that the process has used so far, user and system, in seconds. */
export function cpuSeconds(pid: number): number {
  const fields = statFields(pid) ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

/**
 * Resident memory of the process in MB of 2^20 bytes: now (`VmRSS`), or the most so far (`VmHWM`). Undefined when the
 * process has ended.
 */
export function residentMb(pid: number, field: 'VmRSS' | 'VmHWM' = 'VmRSS'): number | undefined {
  const status = readIfThere(() => readFileSync(`/proc/${pid}/status`, 'utf8')) ?? '';
  const kilobytes = new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1];
  return kilobytes === undefined ? undefined : Number(kilobytes) / 1024;
}

/** Anonymous memory of the process, which no file backs, in MB of 2^20 bytes. */
export function anonymousMb(pid: number): number {
  const kilobytes = /^Anonymous:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1];
  return Number(kilobytes) / 1024;
}

/** A clone that runs or has run uses several MB of the memory that it was cloned from. */
const RUN_KB = 1024;

/** Whether the guest of a clone has run. A spare QEMU is among the pool's clones, but its guest has not run. */
export function hasRun(pid: number): boolean {
  const smaps = readFileSync(`/proc/${pid}/smaps`, 'utf8');
  const used = [...smaps.matchAll(/memfd:sandbar-template.*\nSize:.*\n(?:[^\n]*\n){0,3}?Rss:\s+(\d+)/g)];
  return used.some(([, kilobytes]) => Number(kilobytes) > RUN_KB);
}

/**
 * When the process started, in ticks since the boot. Together with the process id it identifies a process uniquely,
 * because the kernel reuses ids. Undefined when the process has ended.
 */
export function startOf(pid: number): string | undefined {
  const fields = statFields(pid);
  return fields === undefined || fields[0] === 'Z' ? undefined : fields[19];
}

/** The process id on the first line of a pid file; undefined when there is no such file. */
export function readPid(file: string): number | undefined {
  const pid = Number.parseInt(readIfThere(() => readFileSync(file, 'utf8')) ?? '', 10);
  return pid > 0 ? pid : undefined;
}

function statFields(pid: number): string[] | undefined {
  const stat = readIfThere(() => readFileSync(`/proc/${pid}/stat`, 'utf8'));
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Returns the result of `read`, or undefined when the file or the process does not exist. */
export function readIfThere<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH' || code === 'ENOTDIR') return undefined;
    throw error;
  }
}
