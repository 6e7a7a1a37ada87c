// Plans which sections run in which mode of the service. Orders them by mode, so that the service starts once per mode.
import type { SectionName } from './arguments.ts';
import { MODES, type Mode } from './bench-service.ts';
import type { Step } from './context.ts';
import { benchBoots } from './sections/boots.ts';
import { benchBurst } from './sections/burst.ts';
import { benchChain } from './sections/chain.ts';
import { benchCreate } from './sections/create.ts';
import { benchDurability } from './sections/durability.ts';
import { benchExec } from './sections/exec.ts';
import { benchIdle } from './sections/idle.ts';
import { benchKill } from './sections/kill.ts';
import { benchMany } from './sections/many.ts';
import { benchMemory } from './sections/memory.ts';
import { benchFromSnapshot, benchSnapshots } from './sections/snapshots.ts';
import { benchVolumes } from './sections/volumes.ts';

export type PlannedStep = { section: SectionName; mode: Mode; run: Step };

/** Sections that time the bare QEMU restore, alone or alternately with what they measure. */
const WITH_RESTORE: readonly SectionName[] = [
  'restore',
  'create',
  'exec',
  'burst',
  'boots',
  'volumes',
  'snapshots',
  'memory',
];

export function planSteps(sections: readonly SectionName[], checkout: string): PlannedStep[] {
  const steps: PlannedStep[] = [
    ...MODES.map((mode) => ({ section: 'create' as const, mode, run: benchCreate })),
    { section: 'exec', mode: 'pool', run: benchExec },
    { section: 'burst', mode: 'pool', run: benchBurst },
    ...MODES.map((mode) => ({ section: 'idle' as const, mode, run: benchIdle })),
    { section: 'many', mode: 'pool', run: (service, context) => benchMany(service, context, checkout) },
    { section: 'kill', mode: 'pool', run: benchKill },
    { section: 'volumes', mode: 'pool', run: benchVolumes },
    { section: 'snapshots', mode: 'pool', run: benchSnapshots },
    ...MODES.map((mode) => ({ section: 'snapshots' as const, mode, run: benchFromSnapshot })),
    { section: 'chain', mode: 'pool', run: benchChain },
    { section: 'memory', mode: 'pool', run: benchMemory },
    { section: 'durability', mode: 'pool', run: benchDurability },
    { section: 'boots', mode: 'cold', run: benchBoots },
  ];
  const wanted = steps.filter(({ section }) => sections.includes(section));
  return MODES.flatMap((mode) => wanted.filter((step) => step.mode === mode));
}

export function usesRestore(sections: readonly SectionName[]): boolean {
  return sections.some((section) => WITH_RESTORE.includes(section));
}
