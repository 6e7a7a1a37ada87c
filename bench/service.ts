// `npm run bench`: starts a service of its own, measures it from outside and writes the results page. README.md
// explains each measurement.
//   npm run bench -- --quick            all sections with few repetitions, in a few minutes
//   npm run bench -- create exec        only these sections
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { formatDuration, lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { type BenchArguments, readBenchArguments, resultsFile, USAGE } from './service/arguments.ts';
import { BenchService } from './service/bench-service.ts';
import type { Context } from './service/context.ts';
import { verdictOf } from './service/figures.ts';
import { gvisorVersion, NO_GVISOR } from './service/gvisor.ts';
import { readHostInfo } from './service/host-info.ts';
import { describeAccelerator, describeMachine, describeRun } from './service/machine-description.ts';
import { planSteps, usesRestore } from './service/plan.ts';
import { machineQemu, QemuRestore } from './service/qemu-restore.ts';
import { References } from './service/references.ts';
import { type Results, renderFigure, renderResults } from './service/report.ts';
import { benchReferences } from './service/sections/references.ts';

const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
const results: Results = { isolation: undefined, facts: [], figures: [], problems: [], notes: [] };

function note(sentence: string): void {
  results.notes.push(sentence);
  progress.say(`  ! ${sentence}`);
}

async function main(given: BenchArguments): Promise<number> {
  results.facts.push(describeRun(given));
  const gvisor = gvisorVersion();
  if (gvisor === undefined) note(NO_GVISOR);
  progress.say('Setting up');
  const service = await BenchService.prepare(given.sizes.pool, progress, stop);
  try {
    await measure(service, given, gvisor);
  } finally {
    await service.stop(hurry);
    // Print leaks at once too, because a run that was stopped writes no results page.
    for (const leak of await service.remove()) {
      results.problems.push(`left behind: ${leak}`);
      progress.say(`  ! left behind: ${leak}`);
    }
  }
  return conclude(given);
}

async function measure(service: BenchService, { sections, sizes }: BenchArguments, gvisor: string | undefined) {
  const { checkout, cacheDir, env } = service.config;
  const qemuPath = env.SANDBAR_QEMU || 'qemu-system-x86_64';
  const steps = planSteps(sections, checkout);
  results.facts.unshift(...describeMachine({ gvisor, qemuPath, checkout }));

  const first = await service.in(steps[0]?.mode ?? 'pool');
  const { isolation, pool } = await readHostInfo(first.paths.hostAgentSocket);
  results.isolation = isolation;
  results.facts.push(describeAccelerator(isolation));
  if (first.mode === 'pool' && pool === undefined) note('This service has no pool: "pool warm" is not what it says.');

  const prepareRestore = () => QemuRestore.prepare(cacheDir, isolation, machineQemu(isolation, env));
  const restore = usesRestore(sections)
    ? await progress.step('template for the bare restore', prepareRestore)
    : undefined;
  const references = new References(gvisor !== undefined, restore);
  const context: Context = { sizes, references, signal: stop, report, note };
  try {
    if (sections.includes('gvisor') || sections.includes('restore')) await benchReferences(restore, context);
    for (const { section, mode, run } of steps) {
      const step = async () => {
        const running = await service.in(mode);
        progress.say(`${section} (${mode})`);
        await run(running, context);
      };
      await unlessStopped(step()).catch(async (error: unknown) => {
        stop.throwIfAborted();
        results.problems.push(`${section} (${mode}) broke off: ${messageOf(error)}`);
        progress.say(`  ! ${results.problems.at(-1)}`);
        await service.clear();
      });
    }
  } finally {
    restore?.remove();
  }
}

function report(figure: Results['figures'][number]): void {
  results.figures.push(figure);
  progress.say(renderFigure(figure));
}

/** Settles like `work`, but rejects at once when the user stops the run. */
function unlessStopped<T>(work: Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(stop.reason);
  if (stop.aborted) onAbort();
  stop.addEventListener('abort', onAbort, { once: true });
  return Promise.race([work, promise]).finally(() => stop.removeEventListener('abort', onAbort));
}

function conclude({ out: given, isWhole }: BenchArguments): number {
  const out = given ?? (isWhole && results.isolation ? resultsFile(results.isolation) : undefined);
  const page = renderResults(results);
  if (out === undefined) console.log(`\n${page}`);
  else {
    writeFileSync(path.resolve(out), page);
    progress.say(`\nWritten: ${out}`);
  }
  const { figures, problems } = results;
  const missed = figures.filter((figure) => figure.bounds?.some((bound) => verdictOf(figure, bound) !== 'met')).length;
  progress.say(`${figures.length} figures; ${missed} miss a bound or cannot be compared; ${problems.length} problems`);
  return problems.length > 0 || missed > 0 ? 1 : 0;
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
