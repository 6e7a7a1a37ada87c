// `npm run bench`: a service of its own, measured from outside, and the results page. README.md says what is measured.
//   npm run bench -- --quick            everything in small, in a minute or two
//   npm run bench -- create exec        some sections only
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Problem } from '@sandbar/service/problem.ts';
import { formatDuration, lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { type BenchArguments, readBenchArguments, type SectionName, type Sizes, USAGE } from './service/arguments.ts';
import { BenchService, destroyAll, MODES, type Mode } from './service/bench-service.ts';
import type { Context, Step } from './service/context.ts';
import { type Figure, verdictOf } from './service/figures.ts';
import { gvisorVersion, NO_GVISOR } from './service/gvisor.ts';
import { readHostInfo } from './service/host-info.ts';
import { describeMachine } from './service/machine-description.ts';
import { QemuRestore } from './service/qemu-restore.ts';
import { References } from './service/references.ts';
import { renderFigure, renderResults } from './service/report.ts';
import { benchBoots } from './service/sections/boots.ts';
import { benchBurst } from './service/sections/burst.ts';
import { benchCreate } from './service/sections/create.ts';
import { benchExec } from './service/sections/exec.ts';
import { benchIdle } from './service/sections/idle.ts';
import { benchKill } from './service/sections/kill.ts';
import { benchMany } from './service/sections/many.ts';
import { benchReferences } from './service/sections/references.ts';

type Planned = { section: SectionName; mode: Mode; run: Step };

/** Sections that run the bare restore, alone or beside what they measure. */
const WITH_RESTORE: readonly SectionName[] = ['restore', 'create', 'exec', 'burst', 'boots'];

const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main({ sections, sizes, isWhole, out }: BenchArguments): Promise<number> {
  const gvisor = gvisorVersion();
  const figures: Figure[] = [];
  const problems: string[] = [];
  const notes: string[] = gvisor === undefined ? [NO_GVISOR] : [];
  if (gvisor === undefined) progress.say(`  ! ${NO_GVISOR}`);

  progress.say('Setting up');
  const service = await BenchService.prepare(sizes.pool, progress, stop);
  const { checkout, cacheDir, env } = service.config;
  const qemuPath = env.SANDBAR_QEMU || 'qemu-system-x86_64';
  let restore: QemuRestore | undefined;
  let facts: string[] = [];
  try {
    const steps = plan(checkout).filter(({ section }) => sections.includes(section));
    const firstMode = steps[0]?.mode ?? 'pool';
    const load = describeMachine({ isolation: undefined, gvisor, qemuPath, checkout });
    const { isolation, pool } = await readHostInfo((await service.in(firstMode)).paths.hostAgentSocket);
    facts = describeMachine({ isolation, gvisor, qemuPath, checkout }).map((fact, at) =>
      fact.startsWith('Load') ? (load[at] ?? fact) : fact,
    );
    facts.push(describeRun(sections, sizes, isWhole));
    if (firstMode === 'pool' && pool === undefined)
      notes.push('This service has no pool: "pool warm" is not what it says.');
    if (sections.some((section) => WITH_RESTORE.includes(section))) {
      restore = await progress.step('template for the bare restore', () =>
        QemuRestore.prepare(cacheDir, isolation, qemuPath),
      );
    }
    const context: Context = {
      sizes,
      references: new References(gvisor !== undefined, restore),
      signal: stop,
      report: (figure) => {
        figures.push(figure);
        progress.say(renderFigure(figure));
      },
      note: (sentence) => {
        notes.push(sentence);
        progress.say(`  ! ${sentence}`);
      },
    };
    if (sections.includes('gvisor') || sections.includes('restore')) {
      progress.say('gvisor, restore');
      await benchReferences(restore, context);
    }
    for (const { section, mode, run } of steps) {
      const running = await service.in(mode);
      progress.say(`${section} (${mode})`);
      await run(running, context).catch(async (error: unknown) => {
        stop.throwIfAborted();
        problems.push(`${section} (${mode}) broke off: ${error instanceof Error ? error.message : String(error)}`);
        progress.say(`  ! ${problems.at(-1)}`);
        await destroyAll(running.sandbar);
      });
    }
  } finally {
    restore?.remove();
    await service.stop(hurry);
    problems.push(...(await service.remove()).map((leak) => `left behind: ${leak}`));
  }

  const page = renderResults({ facts, figures, problems, notes });
  if (out === undefined) console.log(`\n${page}`);
  else {
    writeFileSync(path.resolve(out), page);
    progress.say(`\nWritten: ${out}`);
  }
  const missed = figures.filter((figure) => figure.bounds?.some((bound) => verdictOf(figure, bound) !== 'met'));
  progress.say(
    `${figures.length} figures; ${missed.length} miss a bound or cannot be compared; ${problems.length} problems`,
  );
  return problems.length > 0 || missed.length > 0 ? 1 : 0;
}

/** Every step in the order of its mode, so that the service is started once a mode. */
function plan(checkout: string): Planned[] {
  const many: Step = (service, context) => benchMany(service, context, checkout);
  const steps: Planned[] = [
    ...MODES.map((mode) => ({ section: 'create' as const, mode, run: benchCreate })),
    { section: 'exec', mode: 'pool', run: benchExec },
    { section: 'burst', mode: 'pool', run: benchBurst },
    ...MODES.map((mode) => ({ section: 'idle' as const, mode, run: benchIdle })),
    { section: 'many', mode: 'pool', run: many },
    { section: 'kill', mode: 'pool', run: benchKill },
    { section: 'boots', mode: 'cold', run: benchBoots },
  ];
  return MODES.flatMap((mode) => steps.filter((step) => step.mode === mode));
}

function describeRun(sections: readonly SectionName[], sizes: Sizes, isWhole: boolean): string {
  if (isWhole) return 'Run: whole, default sizes';
  const given = Object.entries(sizes).map(([name, value]) => `${name} ${value}`);
  return `Run: sections ${sections.join(', ')}; ${given.join(', ')}`;
}

const began = performance.now();
try {
  if (process.argv.includes('--help')) console.log(USAGE);
  else process.exitCode = await main(readBenchArguments(process.argv.slice(2)));
} catch (error) {
  if (stop.aborted) console.error('\nStopped.');
  else console.error(error instanceof Problem ? `\n${error.message}` : error);
  process.exitCode = stop.aborted ? 130 : 1;
}
console.error(`npm run bench took ${formatDuration(performance.now() - began)}`);
process.exit();
