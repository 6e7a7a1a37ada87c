// `npm run test:kvm` tests the service on KVM on a computer without KVM. It boots a Debian VM ("the host") whose
// emulated processor supports virtualisation, and runs the test in it (inside/main.ts). The test is slow. It leaves
// only the image of the host in the cache.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readConfig } from '@sandbar/service/config.ts';
import { formatDuration, lineProgress, type Progress } from '@sandbar/service/progress.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { makeDataDisk } from './data-disk.ts';
import { ensureHostImage, type HostImage } from './host-image.ts';
import { runHost } from './host-vm.ts';
import { verdictOf } from './inside/verdict.ts';

/**
 * Matches a crash of the host's kernel that QEMU causes. QEMU 7.2's emulated SVM delivers an interrupt right after a
 * guest exits, before the host's registers are restored. It happened in three of five boots with a clone pool. It is no
 * fault of the service, so the test boots the host again.
 */
const PANIC = /Kernel panic - not syncing: (?!Attempted to kill init)/;
const CRASHED = `the host's own kernel crashed`;
const ATTEMPTS = 5;

async function main(stop: AbortSignal): Promise<void> {
  const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
  const config = readConfig(process.env, process.getuid?.() ?? -1);
  const { checkout, cacheDir } = config;
  progress.say('Setting up');
  const { goPath } = await setUp(config, progress);
  const image = await progress.step('image of a host', (say) => ensureHostImage(cacheDir, goPath, say));

  const folder = await mkdtemp(path.join(tmpdir(), 'sandbar-kvm-'));
  try {
    const disk = await progress.step('disk with the checkout', () =>
      makeDataDisk(folder, { checkout, cacheDir, goPath }),
    );
    stop.throwIfAborted();
    const began = performance.now();
    const run = () => runTest(image, disk, stop, progress);
    let verdict = await run();
    for (let crashes = 1; verdict === CRASHED && crashes < ATTEMPTS; crashes++) {
      progress.say(`\nThe host's own kernel crashed (${crashes} of ${ATTEMPTS}); booting it again.`);
      verdict = await run();
    }
    if (verdict !== 'passed') throw new Error(verdict);
    progress.say(`\nPassed on KVM in ${formatDuration(performance.now() - began)}.`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Boots the host once and shows its console. Returns `passed`, the reason of a failure, or `CRASHED`. */
async function runTest(image: HostImage, disk: string, stop: AbortSignal, progress: Progress): Promise<string> {
  progress.say('Booting the host; what follows is its console');
  const began = performance.now();
  let verdict: string | undefined;
  let hasPanicked = false;
  const onLine = (line: string) => {
    progress.say(`${formatElapsed(began)} | ${line}`);
    verdict ??= verdictOf(line);
    hasPanicked ||= PANIC.test(line);
  };
  await runHost(image, disk, onLine, stop);
  return verdict ?? (hasPanicked ? CRASHED : 'the host went off before the test had ended');
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
