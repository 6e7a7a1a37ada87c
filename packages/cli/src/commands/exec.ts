// `sandbar exec`: runs a command in an existing machine.
import type { Command } from '@commander-js/extra-typings';
import { parseId } from '../arguments.ts';
import { connect } from '../connect.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { addJobOptions } from '../options.ts';
import { programOf } from '../program.ts';

export function defineExec(command: Command): void {
  addJobOptions(
    command
      .argument('<machine>', 'the id of the machine', parseId)
      .argument('<command...>', 'what to run, and its arguments'),
  )
    .usage('MACHINE [OPTIONS] -- COMMAND [ARGUMENTS]')
    .option('--name <name>', 'a label for the job')
    .addHelpText(
      'after',
      `
Runs the command in a running machine with its output live, and ends with its exit code. Ctrl-C cancels it.`,
    )
    .action(async (machineId, argv, options) => {
      const run = programOf(argv, options, options.name);
      process.exitCode = await run(connect(), machineId, onInterruption()).catch((error: unknown) => {
        if (error instanceof Interrupted) return error.exitCode;
        throw error;
      });
    });
}
