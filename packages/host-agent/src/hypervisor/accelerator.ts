// Decides between KVM and emulation. `/dev/kvm` existing proves nothing: on some hosts it opens and no ordinary guest
// boots on it. So a short boot is tried, and its answer holds for as long as the host is up.
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { Isolation } from '@sandbar/contract/machine.ts';
import type { AcceleratorChoice } from '../config.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';

/** With KVM the kernel reaches our init in 0.3 s. */
const PROBE_TIMEOUT_MS = 5000;
/** What our init prints as it starts, or the kernel that starts it; no console output at all is a guest that hangs. */
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
};

/** The answer for this boot of the host, with a reason for the log. Throws when KVM was asked for and does not work. */
export async function chooseAccelerator(question: AcceleratorQuestion): Promise<AcceleratorAnswer> {
  const { choice, stateDir, bootId, qemuVersion, probe, kvmDevice = '/dev/kvm' } = question;
  if (choice === 'tcg') return { isolation: 'emulated', reason: 'SANDBAR_ACCELERATOR=tcg' };
  const path = join(stateDir, 'accelerator.json');
  const remembered = readRecord<RememberedAnswer>(path);
  const isFresh = remembered?.bootId === bootId && remembered.qemuVersion === qemuVersion;
  const answer = isFresh ? remembered : await probeKvm(probe, kvmDevice);
  if (!isFresh) writeRecord(path, { ...answer, bootId, qemuVersion });
  if (choice === 'kvm' && answer.isolation !== 'kvm') throw new Error(`SANDBAR_ACCELERATOR=kvm, but ${answer.reason}`);
  return { isolation: answer.isolation, reason: answer.reason };
}

async function probeKvm(probe: ProbeBoot, kvmDevice: string): Promise<AcceleratorAnswer> {
  const obstacle = openingFails(kvmDevice);
  if (obstacle) return { isolation: 'emulated', reason: `${kvmDevice} cannot be used (${obstacle})` };
  const output = await shortBoot(probe);
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

/** Boots without a disk: our init says that it lacks one and powers off. Resolves with all that was printed. */
function shortBoot({ qemuPath, kernelPath, initramfsPath }: ProbeBoot): Promise<string> {
  const args = [
    '-nodefaults -no-user-config -display none -machine microvm,acpi=on -accel kvm -cpu host -smp 1 -m 256M -no-reboot',
    '-serial stdio -append',
  ].flatMap((line) => line.split(' '));
  const child = spawn(qemuPath, [
    ...args,
    'console=ttyS0 quiet reboot=t panic=-1 sandbar.probe=1',
    '-kernel',
    kernelPath,
    '-initrd',
    initramfsPath,
  ]);
  return new Promise((resolve) => {
    let output = '';
    const collect = (chunk: Buffer) => {
      output += chunk.toString('latin1');
      if (output.includes(SIGN_OF_LIFE) || output.length > 1024 * 1024) child.kill('SIGKILL');
    };
    const timer = setTimeout(() => child.kill('SIGKILL'), PROBE_TIMEOUT_MS);
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.on('error', () => {});
    child.on('close', () => {
      clearTimeout(timer);
      resolve(output);
    });
  });
}
