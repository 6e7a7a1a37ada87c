// Makes the faults of a plan, one after the other, while the clients work.
import { setTimeout as delay } from 'node:timers/promises';
import { type Kill, type Killing, waitForActs } from '../kills/killer.ts';
import { createRandom } from '../kills/random.ts';
import type { ChaosBed } from './bed.ts';
import { FAULTS } from './faults.ts';
import type { PlannedFault } from './plan.ts';

/** The shortest time from the end of a fault to the next one. */
const BETWEEN_MS = 1_000;

/**
 * Makes all faults. Each one waits until the service works again after the one before, and until the clients have done
 * something. `backMs` of a fault is the time from its end to the first good answer.
 */
export async function makeFaults(
  bed: ChaosBed,
  seed: number,
  plan: readonly PlannedFault[],
  { keeper, casualties, journal, signal }: Killing,
): Promise<Kill[]> {
  const done: Kill[] = [];
  for (const { kind, waitMs, lengthMs, stream } of plan) {
    await delay(waitMs, undefined, { signal });
    const fault = await FAULTS[kind]({ bed, random: createRandom(seed, stream), casualties, signal });
    const number = done.length + 1;
    journal.write(`fault ${number} of ${plan.length}: ${kind}, for ${lengthMs} ms: ${fault.about}`);
    // Also after a stop of the run, or the clients would wait for a service that is broken.
    await delay(lengthMs, undefined, { signal }).finally(() => fault.end());
    const ended = performance.now();
    await keeper.waitForAnswer();
    const backMs = performance.now() - ended;
    journal.write(`fault ${number}: ${kind} has ended, first good answer after ${backMs.toFixed(0)} ms`);
    done.push({ victim: kind, backMs });
    await delay(BETWEEN_MS, undefined, { signal });
    await waitForActs({ journal, signal });
  }
  return done;
}
