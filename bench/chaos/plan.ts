// Chooses the faults of a run by its seed alone, before the run begins. So the same seed gives the same faults,
// whatever the load does.
import { createRandom, type Random } from '../kills/random.ts';

export const FAULT_KINDS = [
  'host-agent',
  'control-plane',
  'vm',
  'postgres',
  'full disk',
  'cut network',
  'slow network',
  'clock step',
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

export type PlannedFault = {
  kind: FaultKind;
  /** The pause before the fault. */
  waitMs: number;
  /** How long the fault lasts: how long a killed process stays dead, or a disk stays full. */
  lengthMs: number;
  /** Number of the random stream from which the fault chooses its details, such as the victim. */
  stream: number;
};

/** The shortest and the longest time that a fault lasts, in milliseconds. */
const LENGTHS_MS: Record<FaultKind, readonly [least: number, most: number]> = {
  'host-agent': [0, 4_000],
  'control-plane': [0, 4_000],
  // The host agent notices a dead VM by itself, and the supervisor of PostgreSQL starts it again at once.
  vm: [0, 0],
  postgres: [0, 0],
  'full disk': [3_000, 10_000],
  'cut network': [1_000, 12_000],
  'slow network': [4_000, 12_000],
  'clock step': [3_000, 10_000],
};
const LONGEST_WAIT_MS = 2_500;
/** The streams below are those of the plan itself and of the clients (kills/run.ts). */
const FIRST_STREAM = 1_000;

/** Plans `count` faults. Every eight faults in a row contain each kind once, in a random order. */
export function planFaults(seed: number, count: number): PlannedFault[] {
  const random = createRandom(seed, 0);
  const plan: PlannedFault[] = [];
  while (plan.length < count) {
    for (const kind of shuffle(FAULT_KINDS, random)) {
      const [least, most] = LENGTHS_MS[kind];
      const waitMs = random.integer(0, LONGEST_WAIT_MS);
      plan.push({ kind, waitMs, lengthMs: random.integer(least, most), stream: FIRST_STREAM + plan.length });
    }
  }
  return plan.slice(0, count);
}

function shuffle<T>(items: readonly T[], random: Random): T[] {
  return items
    .map((item) => ({ item, order: random.next() }))
    .toSorted((one, other) => one.order - other.order)
    .map(({ item }) => item);
}
