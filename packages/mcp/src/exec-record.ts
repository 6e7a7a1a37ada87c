// What the tools show of a command that has ended: how it ended, and the beginning of its output.
import { exitCodeOf } from '@sandbar/sdk/exec-result.ts';
import { z } from 'zod';
import { readOnHint } from './output-part.ts';
import type { EndedJob } from './run-to-end.ts';

const nextOffset = z.number().nullable();

export const execFields = {
  job_id: z.string(),
  exit_code: z.number().describe('128 + n when signal n ended it; 124 after a time-out.'),
  signal: z.string().nullable(),
  timed_out: z.boolean(),
  stdout: z.string(),
  stdout_bytes: z.number(),
  stdout_next_offset: nextOffset.describe('Where exec_output reads on; null: nothing is missing.'),
  stderr: z.string(),
  stderr_bytes: z.number(),
  stderr_next_offset: nextOffset,
};
export const ExecRecord = z.object(execFields);
export type ExecRecord = z.infer<typeof ExecRecord>;

/** Throws JobLostError when the machine stopped or died while the job ran. */
export function toExecRecord({ job, stdout, stderr }: EndedJob): ExecRecord {
  return {
    job_id: job.id,
    exit_code: exitCodeOf(job),
    signal: job.signal,
    timed_out: job.status === 'timed_out',
    stdout: stdout.text,
    stdout_bytes: stdout.totalBytes,
    stdout_next_offset: stdout.nextOffset,
    stderr: stderr.text,
    stderr_bytes: stderr.totalBytes,
    stderr_next_offset: stderr.nextOffset,
  };
}

/** Says how the command ended, then shows its output. `hintOf` makes the sentence about missing output. */
export function execText(ended: EndedJob, hintOf: typeof readOnHint = readOnHint): string {
  const { job, stdout, stderr } = ended;
  const { exit_code, signal, timed_out } = toExecRecord(ended);
  const how = timed_out ? ', timed out' : signal === null ? '' : `, ended by ${signal}`;
  const of = { machineId: job.machine_id, jobId: job.id };
  const parts = [
    `exit code ${exit_code}${how}`,
    stdout.text,
    hintOf(stdout, { ...of, stream: 'stdout' }),
    ...(stderr.text === '' ? [] : ['[stderr]', stderr.text]),
    hintOf(stderr, { ...of, stream: 'stderr' }),
  ];
  return parts
    .filter((part) => part !== '')
    .map((part) => part.replace(/\n$/, ''))
    .join('\n');
}
