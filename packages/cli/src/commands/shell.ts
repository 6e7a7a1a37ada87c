// `sandbar shell`: opens a terminal in a machine, or joins one that runs.
import type { Command } from '@commander-js/extra-typings';
import { collectVariables, onlyGiven, parseId, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { withTerm } from '../options.ts';
import { printJson, printTable } from '../print.ts';
import { runTerminal } from '../run-terminal.ts';

export function defineShell(command: Command): void {
  command
    .argument('<machine>', 'the id of the machine', parseId)
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
    .action(async (machineId, argv, { list, json, join, user, cwd, env }) => {
      if (list) return listTerminals(machineId, json === true);
      const opens = onlyGiven({ command: argv.length === 0 ? undefined : argv, user, cwd, env });
      if (join !== undefined && Object.keys(opens).length > 0) {
        throw new UsageError('--join takes no command, --user, --cwd or --env, because the terminal runs already');
      }
      const request = join === undefined ? { ...opens, env: withTerm(env) } : { terminal_id: join };
      process.exitCode = await runTerminal(connect(), machineId, request, onInterruption()).catch((error: unknown) => {
        if (error instanceof Interrupted) return error.exitCode;
        throw error;
      });
    });
}

async function listTerminals(machineId: string, isJson: boolean): Promise<void> {
  const terminals = await connect().terminals.list(machineId);
  if (isJson) return printJson({ terminals });
  const rows = terminals.map(({ id, created_at, connections, cols, rows, command }) => [
    id,
    created_at,
    String(connections),
    `${cols}x${rows}`,
    command.join(' '),
  ]);
  printTable(['ID', 'CREATED', 'CONNECTIONS', 'SIZE', 'COMMAND'], rows);
}
