// Chooses between KVM and emulation. An accessible `/dev/kvm` proves nothing: on some hosts the device opens but no
// ordinary guest boots. Therefore the agent boots a small test guest once and remembers the result until the host
// reboots.
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import type { AcceleratorChoice } from '../config.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';

/**
 * How long the test guest may print nothing, and how long it may then take to reach our init. With KVM the kernel
 * prints within milliseconds and reaches our init in 0.3 s. On an idle host whose KVM is itself emulated, this takes 3
 * s and 6 s. A guest that prints has not hung at the start, so it gets more time.
 */
const SILENT_GUEST_MS = 10_000;
const SPEAKING_GUEST_MS = 120_000;
/** Text that our init prints when it starts. */
const SIGN_OF_LIFE = 'sandbar-agent';

export type ProbeBoot = { qemuPath: string; kernelPath: string; initramfsPath: string };
export type AcceleratorAnswer = { isolation: Isolation; reason: string };
type RememberedAnswer = AcceleratorAnswer & { bootId: string; qemuVersion: string };

export type AcceleratorQuestion = {
  choice: AcceleratorChoice;
  /** Folder of accelerator.json, which remembers whether a test guest booted with KVM. */
  stateDir: string;
  bootId: string;
  qemuVersion: string;
  probe: ProbeBoot;
  kvmDevice?: string;
  /** An abort ends the test boot. */
  signal?: AbortSignal;
  /** The time limits of the test boot are multiplied by this; 1 by default. */
  patience?: number;
};

/**
 * Returns the isolation to use on this host, with a reason for the log. Boots a test guest unless an answer for this
 * boot of the host and this QEMU version is stored. Throws when the configuration requires KVM and KVM does not work, and
 * the signal's reason when it aborted during the test boot: then nothing is remembered.
 */
export async function chooseAccelerator(question: AcceleratorQuestion): Promise<AcceleratorAnswer> {
  const { choice, stateDir, bootId, qemuVersion, probe, kvmDevice = '/dev/kvm', signal, patience = 1 } = question;
  if (choice === 'tcg') return { isolation: 'emulated', reason: 'SANDBAR_ACCELERATOR=tcg' };
  const path = join(stateDir, 'accelerator.json');
  const remembered = readRecord<RememberedAnswer>(path);
  const isFresh = remembered?.bootId === bootId && remembered.qemuVersion === qemuVersion;
  const answer = isFresh ? remembered : await probeKvm(probe, kvmDevice, patience, signal);
  if (!isFresh) writeRecord(path, { ...answer, bootId, qemuVersion });
  if (choice === 'kvm' && answer.isolation !== 'kvm') throw new Error(`SANDBAR_ACCELERATOR=kvm, but ${answer.reason}`);
  return { isolation: answer.isolation, reason: answer.reason };
}

async function probeKvm(
  probe: ProbeBoot,
  kvmDevice: string,
  patience: number,
  signal: AbortSignal | undefined,
): Promise<AcceleratorAnswer> {
  const obstacle = openingFails(kvmDevice);
  if (obstacle) return { isolation: 'emulated', reason: `${kvmDevice} cannot be used (${obstacle})` };
  const output = await shortBoot(probe, patience, signal);
  signal?.throwIfAborted();
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

/** `rtc=on`, because a kernel without a clock chip loses seconds searching for it. */
const PROBE_MACHINE = [
  '-nodefaults -no-user-config -display none -machine microvm,acpi=on,rtc=on,ioapic2=off -accel kvm -cpu host',
  '-smp 1 -m 256M -no-reboot -serial stdio',
].flatMap((line) => line.split(' '));

/**
 * The kernel prints from its first moment, so that a silent guest is known to hang. It prints little, because console
 * output is slow where KVM itself is emulated.
 */
const PROBE_KERNEL = [
  'console=ttyS0 earlyprintk=ttyS0 loglevel=6 reboot=t panic=-1 8250.nr_uarts=1 cryptomgr.notests sandbar.probe=1',
  'initcall_blacklist=jent_mod_init',
].join(' ');

/**
 * Boots the test guest and resolves with everything it printed. The guest has no disk: our init reports that and powers
 * off.
 */
function shortBoot(
  { qemuPath, kernelPath, initramfsPath }: ProbeBoot,
  patience: number,
  signal: AbortSignal | undefined,
): Promise<string> {
  const boot = ['-append', PROBE_KERNEL, '-kernel', kernelPath, '-initrd', initramfsPath];
  const child = spawn(qemuPath, [...PROBE_MACHINE, ...boot], {
    stdio: ['ignore', 'pipe', 'pipe'],
    killSignal: 'SIGKILL',
    ...(signal ? { signal } : {}),
  });
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
