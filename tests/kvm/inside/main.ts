// Runs inside the emulated host: runs the parts of the test that the kernel's command line names, one after the other.
// Ends after a part that failed, because that part may have left something behind. The process outside then boots the
// host again for the other parts.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { describeLeaks, listTaps } from '@sandbar/test-runner/leaks.ts';
import { BENCH, LIFE, LIFE_WITH_MORE, readParts } from '../parts.ts';
import { runBench } from './bench.ts';
import { DEFAULTS, lifeOfMachines, WITH_MORE } from './life-of-machines.ts';
import { showLogs, startService } from './service-process.ts';
import { runTestFile } from './test-file.ts';
import { type Outcome, outcomeLine } from './verdict.ts';

const HOME = '/data/home';

function prepareHost(): void {
  modprobe('kvm_amd', 'nested=0');
  modprobe('vhost_net');
  if (!existsSync('/dev/kvm')) throw new Error('the host has no /dev/kvm: its processor shows no SVM');
}

async function life(part: string): Promise<Outcome> {
  const expected = part === LIFE ? DEFAULTS : WITH_MORE;
  const home = `${HOME}-${part}`;
  const taps = listTaps();
  const service = await startService(home, expected.env);
  const steps = await lifeOfMachines(home, expected).catch((error) => {
    showLogs(home);
    throw error;
  });
  await service.stop();
  const leaks = describeLeaks(home, taps);
  if (leaks.length > 0) throw new Error(`left behind: ${leaks.join('; ')}`);
  return { part, summary: `${steps} steps`, skipped: [] };
}

function modprobe(...args: string[]): void {
  const { status, stderr } = spawnSync('modprobe', args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`modprobe ${args.join(' ')}: ${stderr}`);
}

function failed(part: string, error: unknown): Outcome {
  const failure = (error instanceof Error ? error.message : String(error)).replaceAll(/\s+/g, ' ');
  return { part, failure, summary: '', skipped: [] };
}

let hasFailed = false;
for (const part of readParts(readFileSync('/proc/cmdline', 'utf8'))) {
  console.log(`Part ${part}`);
  const run = async () => {
    prepareHost();
    if (part === BENCH) return runBench(part);
    return part === LIFE || part === LIFE_WITH_MORE ? life(part) : runTestFile(part);
  };
  const outcome = await run().catch((error: unknown) => {
    console.log(error);
    return failed(part, error);
  });
  console.log(outcomeLine(outcome));
  hasFailed = outcome.failure !== undefined;
  if (hasFailed) break;
}
// Exit even when a service could not be stopped, so that the host powers off.
process.exit(hasFailed ? 1 : 0);
