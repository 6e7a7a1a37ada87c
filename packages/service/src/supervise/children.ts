// Ends the commands that an interrupted set-up has started.
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { isAlive, type ProcessIdentity, startTimeOf } from './process-identity.ts';

const BOUND_MS = 10_000;

/** Sends SIGTERM to every child of this process, and SIGKILL to those that still run after ten seconds. */
export async function endChildren(): Promise<void> {
  const children = childrenOf(process.pid);
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    for (const child of children.filter(isAlive)) process.kill(child.pid, signal);
    for (const until = performance.now() + BOUND_MS; children.some(isAlive) && performance.now() < until; )
      await delay(20);
  }
}

function childrenOf(pid: number): ProcessIdentity[] {
  const pids = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
  return pids.flatMap((child) => {
    const startTime = startTimeOf(child);
    return startTime === undefined ? [] : [{ pid: child, startTime }];
  });
}
