// What a fault is: something that begins at a moment of the plan, lasts for a while, and is ended again.
import type { Casualties } from '../kills/casualties.ts';
import type { Random } from '../kills/random.ts';
import type { ChaosBed } from './bed.ts';

export type FaultScene = {
  bed: ChaosBed;
  /** Chooses the details of the fault. */
  random: Random;
  casualties: Casualties;
  /** Aborted when the run ends early. */
  signal: AbortSignal;
};

export type BegunFault = {
  /** What the fault does, for the log. */
  about: string;
  /** Ends the fault. When it resolves, all processes run again and nothing is in the way of the service. */
  end(): Promise<void>;
};

/** Begins a fault. */
export type Fault = (scene: FaultScene) => Promise<BegunFault>;
