// `npm run test:kvm` tests the service on KVM on a computer without KVM. It boots a Debian VM ("the host") whose
// emulated processor supports virtualisation, and runs the parts of the test in it (parts.ts, inside/main.ts).
// Arguments choose parts by name. The test is slow. Afterwards only the image of the host stays, in the cache.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readConfig } from '@sandbar/service/config.ts';
import { Problem } from '@sandbar/service/problem.ts';
import { formatDuration, lineProgress, type Progress } from '@sandbar/service/progress.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { makeDataDisk } from './data-disk.ts';
import { ensureHostImage, type HostImage } from './host-image.ts';
import { runHost } from './host-vm.ts';
import { type Outcome, outcomeOf } from './inside/verdict.ts';
import { chooseParts, partsParameter } from './parts.ts';

/**
 * The line that the host prints when the test in it has ended. A host that goes off without it has crashed: with a
 * panic, or at once. The cause is probably QEMU 7.2: its emulated SVM delivers an interrupt right after a guest exits,
 * before the host's registers are restored. A panic happened in three of five boots with a clone pool. It is no fault
 * of the service, so the test boots the host again for the interrupted part and the remaining ones.
 */
const TEST_ENDED = 'kvm-test-host: the test ended';
/** How often the host may crash in one part before the part is given up. */
const ATTEMPTS = 5;

const NEVER_SHOWN =
  'Not shown by any part: the time that anything takes, KVM on a real processor, and KVM on an Intel processor.';

async function main(stop: AbortSignal): Promise<void> {
  const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
  const config = readConfig(process.env, process.getuid?.() ?? -1);
  const { checkout, cacheDir } = config;
  const parts = chooseParts(checkout, process.argv.slice(2));
  progress.say('Setting up');
  const { goPath } = await setUp(config, progress);
  if (goPath === undefined) throw new Problem('These tests need a checkout, and this is an installed package');
  const image = await progress.step('image of a host', (say) => ensureHostImage(cacheDir, goPath, say));

  const folder = await mkdtemp(path.join(tmpdir(), 'sandbar-kvm-'));
  try {
    const disk = await progress.step('disk with the checkout', () =>
      makeDataDisk(folder, { checkout, cacheDir, goPath }),
    );
    stop.throwIfAborted();
    const began = performance.now();
    const boot = (left: readonly string[]) => runParts({ image, disk, parts: left, stop, progress });
    const outcomes = await runAll(parts, boot, (text) => progress.say(text));
    progress.say(describe(outcomes));
    const failed = outcomes.filter(({ failure }) => failure !== undefined);
    if (failed.length > 0) throw new Error(`${failed.length} of ${parts.length} parts did not pass`);
    progress.say(`\nPassed on KVM in ${formatDuration(performance.now() - began)}.`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

type Boot = { outcomes: Outcome[]; hasCrashed: boolean };

/** Boots the host as often as needed until every part has an outcome. */
async function runAll(
  parts: readonly string[],
  boot: (left: readonly string[]) => Promise<Boot>,
  say: (text: string) => void,
): Promise<Outcome[]> {
  const all: Outcome[] = [];
  let left = [...parts];
  let crashes = 0;
  while (left[0] !== undefined) {
    const { outcomes, hasCrashed } = await boot(left);
    all.push(...outcomes);
    left = left.slice(outcomes.length);
    const [part] = left;
    const isCut = part !== undefined && outcomes.at(-1)?.failure === undefined;
    crashes = isCut && outcomes.length === 0 ? crashes + 1 : Number(isCut);
    if (!isCut) continue;
    const what = hasCrashed ? "the host's own kernel crashed" : 'the test in the host ended before this part had';
    say(`\n${part}: ${what} (${crashes} of ${ATTEMPTS})`);
    if (hasCrashed && crashes < ATTEMPTS) continue;
    all.push({ part, failure: `not shown: ${what}`, summary: '', skipped: [] });
    left = left.slice(1);
    crashes = 0;
  }
  return all;
}

type Run = { image: HostImage; disk: string; parts: readonly string[]; stop: AbortSignal; progress: Progress };

/** Boots the host once, shows its console, and returns the outcomes of the parts that ended. */
async function runParts({ image, disk, parts, stop, progress }: Run): Promise<Boot> {
  progress.say('Booting the host; what follows is its console');
  const began = performance.now();
  const outcomes: Outcome[] = [];
  let hasCrashed = true;
  const onLine = (line: string) => {
    progress.say(`${formatElapsed(began)} | ${line}`);
    const outcome = outcomeOf(line);
    if (outcome) outcomes.push(outcome);
    if (line.includes(TEST_ENDED)) hasCrashed = false;
  };
  await runHost(image, disk, partsParameter(parts), onLine, stop);
  return { outcomes, hasCrashed };
}

/** Returns a line for each part, and a line for each test that the part skipped. */
function describe(outcomes: readonly Outcome[]): string {
  const lines = outcomes.flatMap(({ part, failure, summary, skipped }) => [
    `${failure === undefined ? '✓' : '✖'} ${part}: ${[summary, failure].filter(Boolean).join('; ')}`,
    ...skipped.map((test) => `    not shown: ${test}`),
  ]);
  return ['\nOn KVM in an emulated host:', ...lines, NEVER_SHOWN].join('\n');
}

function formatElapsed(began: number): string {
  return ((performance.now() - began) / 1000).toFixed(1).padStart(6);
}

const { stop } = onStopSignals();
try {
  await main(stop);
} catch (error) {
  if (stop.aborted) console.error('\nStopped.');
  else console.error(`\nFAILED: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = stop.aborted ? 130 : 1;
}
process.exit();
