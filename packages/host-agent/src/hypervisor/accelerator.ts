// Decides between KVM and emulation. `/dev/kvm` existing proves nothing: on some hosts it opens and no ordinary guest
// boots on it. So a short boot is tried, and its answer holds for as long as the host is up.
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { Isolation } from '@sandbar/contract/machine.ts';
import type { AcceleratorChoice } from '../config.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';

/**
 * With KVM the kernel speaks in milliseconds and reaches our init in 0.3 s; where KVM itself is emulated, it takes 3 and
 * 6 s on an idle computer. A guest that has spoken is no guest that hangs from the start, so it gets more time.
 */
const SILENT_GUEST_MS = 10_000;
const SPEAKING_GUEST_MS = 120_000;
/** What our init prints as it starts. */
const SIGN_OF_LIFE = 'sandbar-agent';

export type ProbeBoot = { qemuPath: string; kernelPath: string; initramfsPath: string };
export type AcceleratorAnswer = { isolation: Isolation; reason: string };
type RememberedAnswer = AcceleratorAnswer & { bootId: string; qemuVersion: string };

export type AcceleratorQuestion = {
  choice: AcceleratorChoice;
  /** Where the answer is remembered. */
  stateDir: string;
  bootId: string;
  qemuVersion: string;
  probe: ProbeBoot;
  kvmDevice?: string;
  /** Stretches the time that the probe gives a guest; 1 by default. */
  patience?: number;
};

/** The answer for this boot of the host, with a reason for the log. Throws when KVM was asked for and does not work. */
export async function chooseAccelerator(question: AcceleratorQuestion): Promise<AcceleratorAnswer> {
  const { choice, stateDir, bootId, qemuVersion, probe, kvmDevice = '/dev/kvm', patience = 1 } = question;
  if (choice === 'tcg') return { isolation: 'emulated', reason: 'SANDBAR_ACCELERATOR=tcg' };
  const path = join(stateDir, 'accelerator.json');
  const remembered = readRecord<RememberedAnswer>(path);
  const isFresh = remembered?.bootId === bootId && remembered.qemuVersion === qemuVersion;
  const answer = isFresh ? remembered : await probeKvm(probe, kvmDevice, patience);
  if (!isFresh) writeRecord(path, { ...answer, bootId, qemuVersion });
  if (choice === 'kvm' && answer.isolation !== 'kvm') throw new Error(`SANDBAR_ACCELERATOR=kvm, but ${answer.reason}`);
  return { isolation: answer.isolation, reason: answer.reason };
}

async function probeKvm(probe: ProbeBoot, kvmDevice: string, patience: number): Promise<AcceleratorAnswer> {
  const obstacle = openingFails(kvmDevice);
  if (obstacle) return { isolation: 'emulated', reason: `${kvmDevice} cannot be used (${obstacle})` };
  const output = await shortBoot(probe, patience);
  if (output.includes(SIGN_OF_LIFE)) return { isolation: 'kvm', reason: 'a guest booted on /dev/kvm' };
  const said = output.trim().split('\n').at(-1)?.slice(0, 200);
  return { isolation: 'emulated', reason: `${kvmDevice} opens, but no guest boots on it${said ? ` (${said})` : ''}` };
}

function openingFails(kvmDevice: string): string | undefined {
  try {
    closeSync(openSync(kvmDevice, 'r+'));
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** The clock chip because a kernel that looks for it in vain loses seconds. */
const PROBE_MACHINE = [
  '-nodefaults -no-user-config -display none -machine microvm,acpi=on,rtc=on,ioapic2=off -accel kvm -cpu host',
  '-smp 1 -m 256M -no-reboot -serial stdio',
].flatMap((line) => line.split(' '));

/** The kernel speaks from its first moment on, but not much: a console costs time where KVM itself is emulated. */
const PROBE_KERNEL = [
  'console=ttyS0 earlyprintk=ttyS0 loglevel=6 reboot=t panic=-1 8250.nr_uarts=1 cryptomgr.notests sandbar.probe=1',
  'initcall_blacklist=jent_mod_init',
].join(' ');

/** Boots without a disk: our init says that it lacks one and powers off. Resolves with all that was printed. */
function shortBoot({ qemuPath, kernelPath, initramfsPath }: ProbeBoot, patience: number): Promise<string> {
  const boot = ['-append', PROBE_KERNEL, '-kernel', kernelPath, '-initrd', initramfsPath];
  const child = spawn(qemuPath, [...PROBE_MACHINE, ...boot], { stdio: ['ignore', 'pipe', 'pipe'] });
  return new Promise((resolve) => {
    let output = '';
    const end = () => child.kill('SIGKILL');
    let timer = setTimeout(end, SILENT_GUEST_MS * patience);
    const collect = (chunk: Buffer) => {
      output += chunk.toString('latin1');
      if (output.includes(SIGN_OF_LIFE) || output.length > 1024 * 1024) end();
    };
    child.stdout.once('data', () => {
      clearTimeout(timer);
      timer = setTimeout(end, SPEAKING_GUEST_MS * patience);
    });
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.on('error', () => {});
    child.on('close', () => {
      clearTimeout(timer);
      resolve(output);
    });
  });
}
