// Pid files: the id on the first line, as every tool expects, and on the second the time that the process began, so that
// a file left by a killed supervisor never points at a stranger.
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hasErrorCode } from '../problem.ts';
import { isAlive, type ProcessIdentity, startTimeOf } from './process-identity.ts';

/** Writes the file in one step. A process that is gone already leaves none. */
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

/** What the file says, or undefined when there is none or it is no pid file. */
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
 * Makes this process the holder of the file. Returns undefined, or the living process that holds it.
 * A link is made only where none is, so of two that claim at once one wins.
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

/** Takes a stale file away; returns the holder when another process claimed it in between, and leaves it to that one. */
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
