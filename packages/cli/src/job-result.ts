// Turns the end of a job into an exit code. After a time-out, a lost machine or cut output it prints an explanation.
import type { Exec } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import { signalNumber } from '@sandbar/sdk/exec-result.ts';
import { EXIT } from './exit-codes.ts';
import { printNotice } from './print.ts';

/**
 * The exit code that a shell would report for this job. If the job timed out, its machine stopped or its output was
 * cut, prints a notice on stderr. If the command succeeded but its output was cut, the exit code is `EXIT.outputCut`.
 */
export function exitCodeOfJob(job: Exec): number {
  return noteCutOutput(job, codeOf(job));
}

/** Returns `code`, or `EXIT.outputCut` instead of 0 when the job wrote more than the service keeps. */
export function noteCutOutput({ truncated }: Pick<Exec, 'truncated'>, code: number): number {
  if (!truncated) return code;
  const mib = EXEC_BOUNDS.outputBytesDefault / 2 ** 20;
  printNotice(
    `output beyond the limit of a stream (${mib} MiB by default) was dropped; write it to a file and copy that with sandbar cp`,
  );
  return code === 0 ? EXIT.outputCut : code;
}

function codeOf(job: Exec): number {
  if (job.status === 'timed_out') {
    printNotice('the command ran out of time; --timeout gives it more');
    return EXIT.timeout;
  }
  if (job.status === 'lost') {
    printNotice('the machine stopped while the command ran');
    return EXIT.noResult;
  }
  if (job.exit_code !== null) return job.exit_code;
  if (job.signal === null) return EXIT.noResult;
  return 128 + signalNumber(job.signal);
}
