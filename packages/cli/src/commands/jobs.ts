// `sandbar jobs`: lists the jobs of a machine.
import type { Command } from '@commander-js/extra-typings';
import type { Exec } from '@sandbar/contract/exec.ts';
import { parseId } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printRows } from '../print.ts';
import { BY_NAME, resolveId } from '../resolve-id.ts';

const HEADINGS = ['ID', 'NAME', 'STATUS', 'EXIT', 'STDOUT BYTES', 'STDERR BYTES', 'CREATED', 'FINISHED'];

export function defineJobs(command: Command): void {
  const defined = command
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .option('--json', 'print the answer of the API')
    .addHelpText(
      'after',
      '\nEXIT is the exit code, or the signal that ended the job. sandbar logs prints the output of a job.',
    )
    .action(async (machine, { json }) => {
      const client = connect();
      const execs = await client.execs.list(await resolveId(client, 'machine', machine));
      if (json) printJson({ execs });
      else printRows(HEADINGS, execs.map(rowOf), 'No jobs.');
    });
  addExamples(defined, 'sandbar jobs web', 'sandbar jobs web --json');
}

function rowOf(job: Exec): string[] {
  const { id, name, status, exit_code, signal, stdout_bytes, stderr_bytes, created_at, finished_at } = job;
  const exit = exit_code === null ? (signal ?? '-') : `${exit_code}`;
  return [id, name || '-', status, exit, `${stdout_bytes}`, `${stderr_bytes}`, created_at, finished_at ?? '-'];
}
