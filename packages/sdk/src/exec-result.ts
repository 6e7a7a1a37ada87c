// The result of a command: its output as text or bytes, and an exit code. There is an exit code even when a signal or
// the time limit ended the command.
import type { Exec } from '@sandbar/contract/exec.ts';
import { concatBytes, toText } from './bytes.ts';
import { JobLostError } from './errors.ts';

/** The exit code of a command that ran out of time. The program `timeout` uses the same code. */
const TIMED_OUT_CODE = 124;
/** When signal n ends a command, a shell reports the exit code 128 + n. */
const SIGNAL_BASE = 128;

/** The numbers of Linux's signals (x86-64 and arm64). */
const SIGNAL_NUMBERS: Record<string, number> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGSTKFLT: 16,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGVTALRM: 26,
  SIGPROF: 27,
  SIGIO: 29,
  SIGPWR: 30,
  SIGSYS: 31,
};

export class ExecResult {
  readonly jobId: string;
  /** The exit code of the command. It is 128 + n when signal n ended the command, and 124 when the time limit did. */
  readonly exitCode: number;
  /** The signal that ended the command, such as SIGKILL; null when no signal did. */
  readonly signal: string | null;
  /** Whether the command ran longer than `timeoutSec`. */
  readonly timedOut: boolean;
  /** Whether output over the service's limit (256 MiB a stream by default) was dropped. */
  readonly truncated: boolean;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;

  /** Throws JobLostError when the machine stopped or died while the job ran. */
  constructor(job: Exec, stdout: Uint8Array, stderr: Uint8Array) {
    this.jobId = job.id;
    this.exitCode = exitCodeOf(job);
    this.signal = job.signal;
    this.timedOut = job.status === 'timed_out';
    this.truncated = job.truncated;
    this.stdoutBytes = stdout;
    this.stderrBytes = stderr;
  }

  /** The output as UTF-8 text. */
  get stdout(): string {
    return toText(this.stdoutBytes);
  }

  get stderr(): string {
    return toText(this.stderrBytes);
  }

  /** stdout, then stderr. With `mergeOutput` all output, in the order in which it was written. */
  get combined(): string {
    return toText(concatBytes([this.stdoutBytes, this.stderrBytes]));
  }
}

/** The exit code that a shell would report for an ended job. Throws JobLostError for a lost job. */
export function exitCodeOf(job: Exec): number {
  if (job.status === 'lost') throw new JobLostError(job.machine_id, job.id);
  if (job.status === 'timed_out') return TIMED_OUT_CODE;
  if (job.exit_code !== null) return job.exit_code;
  return SIGNAL_BASE + signalNumber(job.signal);
}

/**
 * Returns the number that a signal such as `SIGKILL` has in Linux; the system of this computer may number signals
 * differently. The service writes a signal that has no name, such as a real-time signal, as `SIG36`. Returns 0 for null
 * and for an unknown name.
 */
export function signalNumber(name: string | null): number {
  if (name === null) return 0;
  const [, number] = /^(?:SIG)?(\d+)$/.exec(name) ?? [];
  return number === undefined ? (SIGNAL_NUMBERS[name] ?? 0) : Number(number);
}
