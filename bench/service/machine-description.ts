// The lines at the head of the results: without them a figure means nothing.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';
import type { Isolation } from '@sandbar/contract/machine.ts';

export function describeMachine(options: {
  isolation: Isolation | undefined;
  gvisor: string | undefined;
  qemuPath: string;
  checkout: string;
}): string[] {
  const { isolation, gvisor, qemuPath, checkout } = options;
  const model = cpus()[0]?.model ?? 'unknown';
  return [
    `Date: ${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC; revision ${revision(checkout)}`,
    `Machine: ${cpus().length} cores of ${model}, ${Math.round(totalmem() / 2 ** 30)} GiB; ${distribution()}, Linux ${release()}`,
    `Load when it began: ${loadavg()
      .map((load) => load.toFixed(2))
      .join(' ')}`,
    `QEMU: ${firstLine(qemuPath, ['--version'])}; machines are ${isolationText(isolation)}`,
    `gVisor: ${gvisor ?? 'not installed'}; Node ${process.version}`,
  ];
}

function isolationText(isolation: Isolation | undefined): string {
  if (isolation === undefined) return 'not looked at in this run';
  return isolation === 'kvm' ? 'on KVM' : 'emulated (TCG, no usable KVM)';
}

function distribution(): string {
  return /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'unknown distribution';
}

/** With a mark when the checkout differs from it. */
function revision(checkout: string): string {
  const git = (...args: string[]) => firstLine('git', ['-C', checkout, ...args]);
  const isChanged = git('status', '--porcelain', '--untracked-files=no', '--', 'packages', 'guest-agent', 'images');
  return `${git('rev-parse', '--short', 'HEAD')}${isChanged === '' ? '' : ' with changes'}`;
}

function firstLine(program: string, args: readonly string[]): string {
  try {
    const output = execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return output.split('\n')[0] ?? '';
  } catch {
    return 'unknown';
  }
}
