// What processes of this computer cost: their processor time and memory, as the kernel counts them.
import { readdirSync, readFileSync } from 'node:fs';

/** The kernel counts processor time in ticks of 10 ms. */
const TICK_MS = 10;
const MB_PER_KB = 1 / 1024;

type Stat = { parent: number; ownMs: number; endedChildrenMs: number };

function readStat(pid: number): Stat | undefined {
  try {
    // The name of the program is in parentheses, and may have spaces.
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
      .map(Number);
    const ticks = (first: number) => ((fields[first] ?? 0) + (fields[first + 1] ?? 0)) * TICK_MS;
    return { parent: fields[1] ?? 0, ownMs: ticks(11), endedChildrenMs: ticks(13) };
  } catch {
    return undefined;
  }
}

/** Processor time of a process so far, in milliseconds. */
export const cpuMsOf = (pid: number): number => readStat(pid)?.ownMs ?? 0;

/**
 * Processor time so far of a PostgreSQL server on this computer and of all its processes, in milliseconds. `pid` is one
 * of its processes, for example that of a connection.
 */
export function cpuMsOfPostgres(pid: number): number {
  const server = readStat(pid)?.parent;
  if (server === undefined) return Number.NaN;
  const own = readStat(server);
  let sum = (own?.ownMs ?? 0) + (own?.endedChildrenMs ?? 0);
  for (const name of readdirSync('/proc')) {
    const stat = /^\d+$/.test(name) ? readStat(Number(name)) : undefined;
    if (stat?.parent === server) sum += stat.ownMs;
  }
  return sum;
}

/**
 * In MB. `rss`: resident memory. `pss`: the same, with pages that processes share counted in parts. `peak`: the most so
 * far.
 */
export type Memory = { rss: number; pss: number; anonymous: number; peak: number };

export function memoryOf(pid: number): Memory {
  const read = (file: string, name: string) => {
    const text = readFileSync(`/proc/${pid}/${file}`, 'latin1');
    return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1]) * MB_PER_KB;
  };
  return {
    ...{ rss: read('smaps_rollup', 'Rss'), pss: read('smaps_rollup', 'Pss') },
    ...{ anonymous: read('smaps_rollup', 'Anonymous'), peak: read('status', 'VmHWM') },
  };
}
