// `sandbar machine ls`, and `sandbar ls` for short: lists machines. It has its own file so that `sandbar ls` loads
// little code.
import { type Command, Option } from '@commander-js/extra-typings';
import { MACHINE_STATES } from '@sandbar/contract/machine-states.ts';
import { collectPairs } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printMachines } from '../machine-table.ts';
import { printJson, printLine } from '../print.ts';

/** Defines the command. The examples in its help use `name`, such as `machine ls`. */
export function defineMachineLs(command: Command, name: string): void {
  const defined = command
    .addOption(new Option('--state <state>', 'only machines in this state (all but destroyed)').choices(MACHINE_STATES))
    .option('--name <name>', 'only machines with this name')
    .option('--metadata <key=value>', 'only machines with this metadata, as often as needed', collectPairs)
    .addOption(new Option('-q, --quiet', 'print only the ids').conflicts('json'))
    .option('--json', 'print the answer of the API')
    .action(async ({ quiet, json, ...filter }) => {
      const machines = await connect().machines.list(filter);
      if (json) printJson({ machines });
      else if (quiet) for (const { id } of machines) printLine(id);
      else printMachines(machines);
    });
  addExamples(defined, `sandbar ${name}`, `sandbar ${name} --state stopped --json`);
}
