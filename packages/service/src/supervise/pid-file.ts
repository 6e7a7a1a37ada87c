// Pid files. The first line is the process id, as every tool expects. The second line is the time at which the process
// began, so that an old file is never taken for another process that got the same id later.
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hasErrorCode } from '../problem.ts';
import { isAlive, type ProcessIdentity, startTimeOf } from './process-identity.ts';

/** Writes the file atomically. Writes nothing when the process has already ended. */
export function writePidFile(file: string, pid: number): void {
  const startTime = startTimeOf(pid);
  if (startTime === undefined) return;
  const temporary = `${file}.${process.pid}`;
  try {
    writeFileSync(temporary, `${pid}\n${startTime}\n`);
    renameSync(temporary, file);
  } finally {
    rmSync(temporary, { force: true });
  }
}

/** Reads the file. Returns undefined when the file does not exist or is not a pid file. */
export function readPidFile(file: string): ProcessIdentity | undefined {
  try {
    const [pid = '', startTime = ''] = readFileSync(file, 'utf8').split('\n');
    return /^\d+$/.test(pid) && /^\d+$/.test(startTime) ? { pid: Number(pid), startTime } : undefined;
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}

export function removePidFile(file: string): void {
  rmSync(file, { force: true });
}

/**
 * Makes this process the holder of the file. Returns undefined, or the running process that holds it already. Creating
 * a hard link fails when the name exists, so only one of two processes that claim the file at the same time succeeds.
 */
export function claimPidFile(file: string): ProcessIdentity | undefined {
  const mine = `${file}.${process.pid}`;
  try {
    writeFileSync(mine, `${process.pid}\n${startTimeOf(process.pid)}\n`);
    for (;;) {
      try {
        linkSync(mine, file);
        return undefined;
      } catch (error) {
        if (!hasErrorCode(error, 'EEXIST')) throw error;
      }
      const holder = readPidFile(file);
      if (holder !== undefined && isAlive(holder)) return holder;
      const winner = removeStale(file);
      if (winner !== undefined) return winner;
    }
  } finally {
    rmSync(mine, { force: true });
  }
}

/** Removes a stale file. When another process claimed it meanwhile, puts the file back and returns that process. */
function removeStale(file: string): ProcessIdentity | undefined {
  const aside = `${file}.stale-${process.pid}`;
  try {
    renameSync(file, aside);
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return undefined;
    throw error;
  }
  const taken = readPidFile(aside);
  if (taken === undefined || !isAlive(taken)) {
    rmSync(aside, { force: true });
    return undefined;
  }
  renameSync(aside, file);
  return taken;
}
