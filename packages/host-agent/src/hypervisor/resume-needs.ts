// Decides whether a host can resume saved memory. The agent describes the VM when it saves the memory, describes the
// host before it resumes that memory, and compares both. A description has only what the guest or the saved state
// depends on, so an update of QEMU or of the processor's microcode that changes none of it does not end a memory
// snapshot.
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { describeProcessor } from './processor.ts';
import { readTscKhz } from './tsc.ts';

export type ResumeNeeds = {
  /** Major and minor version, such as `7.2`. QEMU's maintenance releases keep the format of saved state. */
  qemu: string;
  /** Name of the program, because Debian's `-microvm` build has another configuration. */
  program: string;
  /** QEMU's arguments for the machine, its processor and its devices, without values that the guest never sees. */
  hardware: string[];
  /** Rate of the host's time stamp counter in kHz. */
  tscKhz: number;
  /** With `-cpu host`, lines of /proc/cpuinfo about the host's processor. */
  processor: string[];
};

/** One of the host's QEMU programs, and what saved memory finds on the host when this program resumes it. */
export type ResumeChoice = { qemuPath: string; has: ResumeNeeds };

/** QEMU's flags for everything that the guest sees. */
const HARDWARE = ['-machine', '-accel', '-cpu', '-device'];
/**
 * Parts of these values that no guest sees: the thread that serves a disk, the MAC address (which is in the saved
 * state), options of a restore, and the accelerator's own settings.
 */
const UNSEEN = /,(?:iothread|mac|suppress-vmdesc|memory-backend|thread|tb-size)=[^,]*/g;
/** Longest command line of QEMU that is read, in bytes. Ours have 3,000. */
const MAX_COMMAND_LINE = 64 * 1024;
/** Largest difference between the counters' rates, in millionths. NTP corrects a clock that is wrong by so little. */
const MAX_TSC_PPM = 500;

/** Keeps what the guest sees of QEMU's arguments, in the order of the arguments. */
export function hardwareOf(args: readonly string[]): string[] {
  return args.flatMap((value, at) => {
    const flag = args[at - 1] ?? '';
    // With vhost-net the guest is offered what the host's kernel can do, instead of what QEMU can do.
    if (flag === '-netdev') return value.includes('vhost=on') ? ['-netdev vhost'] : [];
    return HARDWARE.includes(flag) ? [`${flag} ${value.replace(UNSEEN, '')}`] : [];
  });
}

/** Reads the arguments of a running process. Throws when they are longer than any of ours. */
export function argumentsOfProcess(pid: number): string[] {
  const file = openSync(`/proc/${pid}/cmdline`, 'r');
  try {
    const bytes = Buffer.alloc(MAX_COMMAND_LINE);
    // The file belongs to a process that may be hostile, so its length is limited.
    const length = readSync(file, bytes, 0, MAX_COMMAND_LINE, 0);
    if (length === MAX_COMMAND_LINE) throw new Error("QEMU's command line is too long");
    return bytes.toString('utf8', 0, length).split('\0').slice(0, -1);
  } finally {
    closeSync(file);
  }
}

/** Returns the first two numbers of QEMU's answer to `query-version`. Throws when it is not a version. */
export function seriesOfAnswer(answer: unknown): string {
  const { qemu } = Object(answer) as { qemu?: { major?: unknown; minor?: unknown } };
  const { major, minor } = Object(qemu) as { major?: unknown; minor?: unknown };
  if (!Number.isInteger(major) || !Number.isInteger(minor)) throw new Error('QEMU does not say its version');
  return `${major}.${minor}`;
}

/** Describes a VM or a host. With other processor models than `-cpu host`, the host's processor does not matter. */
export function describeNeeds(qemu: string, program: string, args: readonly string[]): ResumeNeeds {
  const hardware = hardwareOf(args);
  const showsProcessor = hardware.some((part) => part.startsWith('-cpu host'));
  return {
    qemu,
    program: basename(program),
    hardware,
    tscKhz: readTscKhz(),
    processor: showsProcessor ? describeProcessor() : [],
  };
}

/** Returns the first two numbers of a version such as `7.2.22`. */
export function seriesOf(version: string): string {
  return version.split('.').slice(0, 2).join('.');
}

/**
 * Returns the first program that can resume the saved memory. If none can, returns a clause that says what the host
 * lacks with the usual program, which is the first of `choices`.
 */
export function chooseQemu(
  needs: ResumeNeeds,
  choices: readonly ResumeChoice[],
): { qemuPath: string } | { missing: string } {
  const found = choices.find(({ has }) => whatIsMissing(needs, has) === undefined);
  if (found) return { qemuPath: found.qemuPath };
  const missing = choices[0] && whatIsMissing(needs, choices[0].has);
  return { missing: missing ?? 'this host has no QEMU' };
}

/**
 * Reads the fingerprint that earlier versions of the agent recorded instead of {@link ResumeNeeds}: the build of QEMU
 * (path, size and time of its file), the accelerator, the counter's rate, with KVM the processor, and QEMU's arguments.
 * Returns undefined when the host has another build now, because the fingerprint does not tell the version of the old
 * build.
 */
export function needsOfFingerprint(fingerprint: string, { qemuPath, has }: ResumeChoice): ResumeNeeds | undefined {
  const [build, , tscKhz, ...rest] = JSON.parse(fingerprint) as [unknown, unknown, number, ...string[][]];
  const { size, mtimeMs } = statSync(qemuPath);
  if (!isDeepStrictEqual(build, [qemuPath, size, mtimeMs])) return undefined;
  return { ...has, hardware: hardwareOf(rest.at(-1) ?? []), tscKhz };
}

/** Says what the host lacks to resume, as a clause. Undefined when it lacks nothing. */
export function whatIsMissing(needs: ResumeNeeds, host: ResumeNeeds): string | undefined {
  if (needs.qemu !== host.qemu)
    return `it needs QEMU ${needs.qemu}, and this host has QEMU ${host.qemu} (SANDBAR_OLD_QEMU can name another)`;
  if (needs.program !== host.program) return `it needs ${needs.program}, and this host uses ${host.program}`;
  const other = needs.hardware.find((part, at) => part !== host.hardware[at]) ?? host.hardware[needs.hardware.length];
  if (other !== undefined) return `this host now gives machines other virtual hardware (then: ${other})`;
  const lacks = difference(needs.processor, host.processor);
  if (lacks.length > 0) return `this host's processor lacks what it needs: ${lacks.join(' ')}`;
  const isNew = difference(host.processor, needs.processor);
  if (isNew.length > 0) return `this host's processor has what the guest does not know: ${isNew.join(' ')}`;
  const apartKhz = Math.abs(needs.tscKhz - host.tscKhz);
  if (apartKhz * 1e6 > needs.tscKhz * MAX_TSC_PPM)
    return `its clock counts ${needs.tscKhz} kHz, and this host's counts ${host.tscKhz}`;
  return undefined;
}

/** The facts in `a` that are not in `b`. */
function difference(a: readonly string[], b: readonly string[]): string[] {
  const known = new Set(b.flatMap(factsOf));
  return a.flatMap(factsOf).filter((fact) => !known.has(fact));
}

/** Splits a line of /proc/cpuinfo into single flags or flaws. Flaws get the prefix `bug:`. Other lines stay whole. */
function factsOf(line: string): string[] {
  const [label = '', value = ''] = line.split(/\s*:\s*/);
  if (label === 'flags') return value.split(' ');
  return label === 'bugs' ? value.split(' ').map((flaw) => `bug:${flaw}`) : [value];
}
