// `sandbar admin`: what only the operator may do.
import type { Command } from '../command.ts';
import { UsageError } from '../usage-error.ts';
import { ACCOUNT_ACTIONS, ACCOUNT_HELP } from './admin-account.ts';
import { HOST_ACTIONS, HOST_HELP } from './admin-host.ts';

/** What follows a name on the command line: resolves with the exit code. */
export type Action = Command['run'];

const HELP = `Usage: sandbar admin account|host ACTION [OPTIONS] [--json]

For the owner of the data directory ($SANDBAR_HOME), on the machine where npm start runs. ID is an id or an e-mail address.

${ACCOUNT_HELP}

${HOST_HELP}`;

const GROUPS: Record<string, Record<string, Action>> = { account: ACCOUNT_ACTIONS, host: HOST_ACTIONS };

async function runAdmin(args: readonly string[]): Promise<number> {
  const [groupName = '', actionName = '', ...rest] = args;
  const group = pick(GROUPS, groupName, 'sandbar admin');
  return pick(group, actionName, `sandbar admin ${groupName}`)(rest);
}

function pick<T>(table: Record<string, T>, name: string, command: string): T {
  const found = Object.hasOwn(table, name) ? table[name] : undefined;
  if (found !== undefined) return found;
  const known = Object.keys(table).join(', ');
  throw new UsageError(
    name === '' ? `${command} takes one of ${known}` : `there is no "${command} ${name}": it takes one of ${known}`,
  );
}

export const admin: Command = {
  name: 'admin',
  summary: 'accounts and hosts, for the operator: sandbar admin account list',
  help: HELP,
  run: runAdmin,
};
