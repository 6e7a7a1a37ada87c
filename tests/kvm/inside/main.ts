// The KVM test itself. It runs in the VM that has KVM, starts the service with `npm start`, and uses machines through
// the SDK.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { describeLeaks, listTaps } from '@sandbar/test-runner/leaks.ts';
import { lifeOfMachines } from './life-of-machines.ts';
import { showLogs, startService } from './service-process.ts';
import { verdictLine } from './verdict.ts';

const HOME = '/data/home';
const CACHE = '/data/cache';

async function main(): Promise<void> {
  modprobe('kvm_amd', 'nested=0');
  if (!existsSync('/dev/kvm')) throw new Error('the host has no /dev/kvm: its processor shows no SVM');
  const taps = listTaps();
  const service = await startService(HOME, CACHE);
  await lifeOfMachines(HOME);
  await service.stop();
  const leaks = describeLeaks(HOME, taps);
  if (leaks.length > 0) throw new Error(`left behind: ${leaks.join('; ')}`);
}

function modprobe(...args: string[]): void {
  const { status, stderr } = spawnSync('modprobe', args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`modprobe ${args.join(' ')}: ${stderr}`);
}

try {
  await main();
  console.log(verdictLine());
} catch (error) {
  showLogs(HOME);
  console.log(error);
  console.log(verdictLine(error instanceof Error ? error.message : String(error)));
  process.exitCode = 1;
}
// Exit even when the service could not be stopped, so that the host powers off.
process.exit();
