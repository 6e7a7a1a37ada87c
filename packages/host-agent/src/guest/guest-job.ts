// Validates the job statuses that a guest sends.
import type { GuestJob } from './guest.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';

/**
 * The most jobs that a guest may list. A machine runs at most 16 jobs, and the guest forgets an ended job as soon as
 * the host has stored its end. So an honest guest lists at most a few more than 16.
 */
const MAX_JOBS = 256;
const GUEST_STATUSES = ['running', 'exited', 'timed_out', 'canceled'] as const;

/**
 * Checks a list of job statuses from a guest. Throws {@link GuestProtocolError} when the list is too long or a status
 * is not valid.
 */
export function parseGuestJobs(value: unknown): GuestJob[] {
  const { jobs } = Object(value) as { jobs?: unknown };
  if (!Array.isArray(jobs) || jobs.length > MAX_JOBS)
    throw new GuestProtocolError('the guest listed its jobs in a shape that is not allowed');
  return jobs.map(parseGuestJob);
}

/** Checks every field of a job status from a guest. Throws {@link GuestProtocolError} when a field is not valid. */
export function parseGuestJob(value: unknown): GuestJob {
  const job = Object(value) as Record<string, unknown>;
  const status = GUEST_STATUSES.find((known) => known === job.status);
  const {
    id,
    exit_code: exitCode = null,
    signal = null,
    stdin_bytes: stdinBytes = null,
    stdout_bytes: stdoutBytes,
    stderr_bytes: stderrBytes,
    truncated,
  } = job;
  if (
    typeof id !== 'string' ||
    !/^[A-Za-z0-9_-]{1,64}$/.test(id) ||
    status === undefined ||
    !(exitCode === null || isExitCode(exitCode)) ||
    !(signal === null || (typeof signal === 'string' && /^SIG[A-Z0-9+]{1,12}$/.test(signal))) ||
    !(stdinBytes === null || isByteCount(stdinBytes)) ||
    !isByteCount(stdoutBytes) ||
    !isByteCount(stderrBytes) ||
    typeof truncated !== 'boolean'
  ) {
    throw new GuestProtocolError('the guest described a job in a shape that is not allowed');
  }
  return { id, status, exitCode, signal, stdinBytes, stdoutBytes, stderrBytes, truncated };
}

/** Exit codes that wait(2) can report: 0 to 255. */
function isExitCode(value: unknown): value is number {
  return isByteCount(value) && value <= 255;
}

function isByteCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
