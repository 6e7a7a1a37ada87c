// `sandbar exec`: runs a command in an existing machine.
import type { Command } from '@commander-js/extra-typings';
import { parseId } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption, unlessInterrupted } from '../interruption.ts';
import { addJobOptions } from '../options.ts';
import { programOf } from '../program.ts';
import { BY_NAME, resolveId } from '../resolve-id.ts';

export function defineExec(command: Command): void {
  const defined = addJobOptions(
    command
      .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
      .argument('<command...>', 'what to run, and its arguments'),
  )
    .usage('MACHINE [OPTIONS] -- COMMAND [ARGUMENTS]')
    .option('--name <name>', 'a label for the job')
    .addHelpText(
      'after',
      `
Runs the command in a running machine with its output live, and ends with its exit code. Ctrl-C cancels it.`,
    )
    .action(async (machine, argv, options) => {
      const run = programOf(argv, options, options.name);
      const client = connect();
      const signal = onInterruption();
      const machineId = await unlessInterrupted(resolveId(client, 'machine', machine), signal);
      process.exitCode = await run(client, machineId, signal);
    });
  addExamples(
    defined,
    'sandbar exec web -- ls -l /',
    'sandbar exec web --cwd /root/app --env CI=1 -- npm test',
    'sandbar exec -it web -- bash',
  );
}
