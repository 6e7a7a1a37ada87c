// Kills processes of the service with SIGKILL, one after the other, at random moments that the seed chooses.
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { qemuPids, readPid } from '../service/processes.ts';
import type { Casualties } from './casualties.ts';
import type { Journal } from './journal.ts';
import type { Keeper } from './keeper.ts';
import type { Random } from './random.ts';

const PROCESSES = ['host-agent', 'control-plane', 'postgres'] as const;
const VICTIMS = [...PROCESSES, 'vm'] as const;

/** The shortest time between two kills. */
const BETWEEN_MS = 2_500;
/** A random time, up to this, is added to the shortest time between two kills. */
const LONGER_MS = 2_500;
/** How many operations the clients must finish between two kills, unless that takes longer than PROGRESS_MS. */
const ACTS_BETWEEN = 3;
const PROGRESS_MS = 30_000;
const POLL_MS = 20;

/**
 * One kill, or another fault. `victim` is what was killed or broken, and `backMs` is the time from the signal, or from
 * the end of the fault, to the first good answer of the API.
 */
export type Kill = { victim: string; backMs: number };

export type Killing = {
  home: string;
  kills: number;
  random: Random;
  casualties: Casualties;
  keeper: Keeper;
  journal: Journal;
  signal: AbortSignal;
};

/** Kills processes one after the other. Each kill waits until the API works again after the kill before it. */
export async function killRepeatedly(killing: Killing): Promise<Kill[]> {
  const { kills, random, keeper, journal, signal } = killing;
  const done: Kill[] = [];
  for (let number = 1; number <= kills; number++) {
    await delay(random.next() * LONGER_MS, undefined, { signal });
    const { victim, pid, about } = await findVictim(killing);
    const began = performance.now();
    if (victim === 'vm') killing.casualties.kill(about);
    process.kill(pid, 'SIGKILL');
    await keeper.waitForAnswer();
    const backMs = performance.now() - began;
    journal.write(
      `kill ${number} of ${kills}: ${victim} ${about} (pid ${pid}), first good answer after ${backMs.toFixed(0)} ms`,
    );
    done.push({ victim, backMs });
    await delay(Math.max(0, BETWEEN_MS - backMs), undefined, { signal });
    await waitForActs(killing);
  }
  return done;
}

/**
 * Waits until the clients have finished some operations: on a slow computer, kills would otherwise come faster than
 * operations end.
 */
export async function waitForActs({ journal, signal }: Pick<Killing, 'journal' | 'signal'>): Promise<void> {
  const before = journal.countActs();
  for (
    const until = performance.now() + PROGRESS_MS;
    performance.now() < until;
    await delay(POLL_MS, undefined, { signal })
  ) {
    if (journal.countActs() >= before + ACTS_BETWEEN) return;
  }
}

type Target = { victim: (typeof VICTIMS)[number]; pid: number; about: string };

/** Chooses the next process to kill. If the choice is a VM but no machine is expendable, it chooses another process. */
async function findVictim({ home, random, casualties, signal }: Killing): Promise<Target> {
  const paths = homePaths(home);
  const chosen = random.pick(VICTIMS) ?? 'vm';
  const instead = random.pick(PROCESSES) ?? 'host-agent';
  if (chosen === 'vm') {
    const vms = [...qemuPids(paths.runMachines)].filter(([id]) => casualties.expendable.has(id));
    const vm = random.pick(vms);
    if (vm) return { victim: 'vm', about: vm[0], pid: vm[1] };
  }
  const victim = chosen === 'vm' ? instead : chosen;
  for (;;) {
    const pid = readPid(paths.pidFile(victim));
    if (pid !== undefined) return { victim, pid, about: '' };
    await delay(POLL_MS, undefined, { signal });
  }
}
