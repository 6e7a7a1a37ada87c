// `sandbar shell`: opens a terminal in a machine, or joins one that runs.
import type { Command } from '@commander-js/extra-typings';
import { collectVariables, onlyGiven, parseId, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption } from '../interruption.ts';
import { withTerm } from '../options.ts';
import { printJson, printRows } from '../print.ts';
import { BY_NAME, resolveId } from '../resolve-id.ts';
import { requireTerminal, runTerminal } from '../run-terminal.ts';

export function defineShell(command: Command): void {
  const defined = command
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .argument('[command...]', 'what to run in place of a login shell, and its arguments')
    .usage('MACHINE [OPTIONS] [-- COMMAND [ARGUMENTS]]')
    .option('--user <user>', 'who runs the shell (root)')
    .option('--cwd <dir>', "where it runs (the user's home)")
    .option('--env <key=value>', 'a variable, as often as needed; KEY alone takes your value of it', collectVariables)
    .option('--join <terminal>', 'join this terminal, which runs already', parseId)
    .option('--list', 'list the terminals that run in the machine')
    .option('--json', 'with --list, print JSON')
    .addHelpText(
      'after',
      `
Opens a login shell in a running machine, and ends with its exit code. ~. at the beginning of a line leaves: the shell
goes on for 10 minutes, and --join comes back to it. A connection that breaks is made again by itself.`,
    )
    .action(async (machine, argv, { list, json, join, user, cwd, env }) => {
      if (list) return listTerminals(machine, json === true);
      const opens = onlyGiven({ command: argv.length === 0 ? undefined : argv, user, cwd, env });
      if (join !== undefined && Object.keys(opens).length > 0) {
        throw new UsageError('--join takes no command, --user, --cwd or --env, because the terminal runs already');
      }
      const request = join === undefined ? { ...opens, env: withTerm(env) } : { terminal_id: join };
      requireTerminal();
      const client = connect();
      const machineId = await resolveId(client, 'machine', machine);
      process.exitCode = await runTerminal(client, machineId, request, onInterruption());
    });
  addExamples(defined, 'sandbar shell web', 'sandbar shell web --user app -- top');
}

async function listTerminals(machine: string, isJson: boolean): Promise<void> {
  const client = connect();
  const terminals = await client.terminals.list(await resolveId(client, 'machine', machine));
  if (isJson) return printJson({ terminals });
  const rows = terminals.map(({ id, created_at, connections, cols, rows, command }) => [
    id,
    created_at,
    String(connections),
    `${cols}x${rows}`,
    command.join(' '),
  ]);
  printRows(['ID', 'CREATED', 'CONNECTIONS', 'SIZE', 'COMMAND'], rows, 'No terminals.');
}
