// Kills replicas of the control plane at random, one at a time, and starts each again after a moment.
import { setTimeout as delay } from 'node:timers/promises';
import type { Kill, Killing } from '../../bench/kills/killer.ts';
import type { Fleet } from './bed/fleet.ts';

/** The shortest time between two kills, and the longest time that is added to it, in milliseconds. */
const BETWEEN_MS = 3_000;
const LONGER_MS = 4_000;
/** How long a replica stays dead at most, in milliseconds. */
const DEAD_MS = 4_000;

/** Kills replicas for some minutes. `backMs` of a kill is the time until the service answered through the balancer. */
export async function killReplicas(fleet: Fleet, minutes: number, killing: Killing): Promise<Kill[]> {
  const { random, keeper, journal, signal } = killing;
  const done: Kill[] = [];
  for (const until = performance.now() + minutes * 60_000; performance.now() < until; ) {
    await delay(BETWEEN_MS + random.next() * LONGER_MS, undefined, { signal });
    const replica = random.pick(fleet.replicas);
    if (!replica) throw new Error('the fleet has no replica');
    const began = performance.now();
    await replica.end('SIGKILL');
    await keeper.waitForAnswer();
    const backMs = performance.now() - began;
    journal.write(`kill ${done.length + 1}: ${replica.name}, first good answer after ${backMs.toFixed(0)} ms`);
    done.push({ victim: 'replica', backMs });
    await delay(random.next() * DEAD_MS, undefined, { signal });
    await replica.start();
  }
  return done;
}
