// Describes the computer, the software versions and the settings of the run, for the top of the results page.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import type { BenchArguments } from './arguments.ts';

const UNKNOWN = 'unknown';

export function describeMachine(options: { gvisor: string | undefined; qemuPath: string; checkout: string }): string[] {
  const { gvisor, qemuPath, checkout } = options;
  const model = cpus()[0]?.model ?? UNKNOWN;
  return [
    `Date: ${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC; revision ${revision(checkout)}`,
    `Machine: ${cpus().length} cores of ${model}, ${Math.round(totalmem() / 2 ** 30)} GiB; ${distribution()}, Linux ${release()}`,
    `Load when it began: ${loadavg()
      .map((load) => load.toFixed(2))
      .join(' ')}`,
    `${firstLine(qemuPath, ['--version'])}; gVisor: ${gvisor ?? 'not installed'}; Node ${process.version}`,
  ];
}

/**
 * Says whether machines were emulated or ran on KVM. On KVM, it also says whether the host is itself a virtual machine,
 * because KVM is slower in one. A virtual machine recognises itself by the processor flag `hypervisor`.
 */
export function describeAccelerator(isolation: Isolation): string {
  if (isolation === 'emulated') return 'Machines are emulated (TCG, no usable KVM)';
  const isVirtual = /^flags\s*:.*\bhypervisor\b/m.test(readFileSync('/proc/cpuinfo', 'utf8'));
  return `Machines are on KVM, on ${isVirtual ? 'a host that is a virtual machine itself' : 'a real processor'}`;
}

/** Names the sections and sizes of the run, or says that it is a whole run with the default sizes. */
export function describeRun({ sections, sizes, isWhole }: BenchArguments): string {
  if (isWhole) return 'Run: whole, usual sizes';
  const given = Object.entries(sizes).map(([name, value]) => `${name} ${value}`);
  return `Run: sections ${sections.join(', ')}; ${given.join(', ')}`;
}

function distribution(): string {
  return /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? UNKNOWN;
}

/** The short hash of the commit, followed by `with changes` when the checkout has uncommitted changes. */
function revision(checkout: string): string {
  const git = (...args: string[]) => firstLine('git', ['-C', checkout, ...args]);
  const revision = git('rev-parse', '--short', 'HEAD');
  if (revision === UNKNOWN) return UNKNOWN;
  const changes = git('status', '--porcelain', '--untracked-files=no', '--', 'packages', 'guest-agent', 'images');
  return `${revision}${changes === '' ? '' : ' with changes'}`;
}

function firstLine(program: string, args: readonly string[]): string {
  try {
    const output = execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return output.split('\n')[0] ?? '';
  } catch {
    return UNKNOWN;
  }
}
