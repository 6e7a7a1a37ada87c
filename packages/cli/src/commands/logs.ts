// `sandbar logs`: prints the output that a job has written so far, or with `-f` all of it until the job ends.
import type { Command } from '@commander-js/extra-typings';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { parseId } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption, unlessInterrupted } from '../interruption.ts';
import { exitCodeOfJob, noteCutOutput } from '../job-result.ts';
import { copyOutput, writeTo } from '../output-copy.ts';
import { BY_NAME, resolveId, resolveJob } from '../resolve-id.ts';

export function defineLogs(command: Command): void {
  const defined = command
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .argument('<job>', `the job, ${BY_NAME}; sandbar jobs lists them`, parseId)
    .option('-f, --follow', 'go on until the job ends, and end with its exit code')
    .addHelpText(
      'after',
      `
Prints stdout of the job to standard output and its stderr to standard error, from the beginning. Ctrl-C ends -f and not
the job.`,
    )
    .action(async (machine, job, { follow }) => {
      const client = connect();
      const signal = onInterruption();
      const machineId = await unlessInterrupted(resolveId(client, 'machine', machine), signal);
      const jobId = await unlessInterrupted(resolveJob(client, machineId, job), signal);
      process.exitCode = await (follow ? followJob : printJob)(client, machineId, jobId, signal);
    });
  addExamples(defined, 'sandbar logs web build', 'sandbar logs web 019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20 -f');
}

/** Prints all output until the job ends. Resolves with the exit code of the job. */
async function followJob(client: Client, machineId: string, jobId: string, signal: AbortSignal): Promise<number> {
  await copyOutput(client.execs, machineId, jobId, {}, signal);
  return exitCodeOfJob(await client.execs.wait(machineId, jobId, { signal }));
}

/** Prints the output that the job has written so far. Resolves with the exit code of this command. */
async function printJob(client: Client, machineId: string, jobId: string, signal: AbortSignal): Promise<number> {
  const job = await client.execs.get(machineId, jobId, { signal });
  const print = (stream: OutputStream) => printStream(client, machineId, jobId, stream, signal);
  await Promise.all([print('stdout'), print('stderr')]);
  return noteCutOutput(job, 0);
}

/**
 * Reads page by page, up to the end that the output had when the first page was read. Without this limit, printing
 * would never end for a job that writes faster than this reads.
 */
async function printStream(
  { execs }: Client,
  machineId: string,
  jobId: string,
  stream: OutputStream,
  signal: AbortSignal,
): Promise<void> {
  let end = Number.POSITIVE_INFINITY;
  for (let offset = 0; offset < end; ) {
    const page = await execs.output(machineId, jobId, { stream, offset, limit: EXEC_BOUNDS.pageBytesMax }, { signal });
    end = Math.min(end, page.total_bytes);
    await writeTo(process[stream], Buffer.from(page.data, 'base64'), signal);
    offset = page.next_offset;
  }
}
