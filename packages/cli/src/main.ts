// The command line: finds the command, runs it, and turns what it throws into one line and an exit code.
import { type Command, CommanderError, program } from '@commander-js/extra-typings';
import { ApiError, ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { AdminSocketError } from './admin-socket-error.ts';
import { UsageError } from './arguments.ts';
import { printNotice, toPrintable } from './print.ts';

const VERSION = '0.1.0';

type Entry = {
  /** A line of `sandbar --help`. */
  summary: string;
  /** Adds options, subcommands and what the command does. Loads its module, so it is called for one command only. */
  define: (command: Command) => Promise<void>;
  /** The subcommand that runs when none is given. */
  defaultAction?: string;
};

/** By name, in the order of the help. */
const COMMANDS: Record<string, Entry> = {
  run: {
    summary: 'runs a command in a machine of its own: sandbar run -- uname -a',
    define: async (command) => (await import('./commands/run.ts')).defineRun(command),
  },
  exec: {
    summary: 'runs a command in a machine: sandbar exec MACHINE -- ls /',
    define: async (command) => (await import('./commands/exec.ts')).defineExec(command),
  },
  machines: {
    summary: 'lists, creates, changes, stops, starts and destroys machines',
    define: async (command) => (await import('./commands/machines.ts')).defineMachines(command),
    defaultAction: 'list',
  },
  volumes: {
    summary: 'lists, creates, attaches, detaches and deletes volumes',
    define: async (command) => (await import('./commands/volumes.ts')).defineVolumes(command),
    defaultAction: 'list',
  },
  snapshots: {
    summary: 'lists, takes, restores and deletes snapshots',
    define: async (command) => (await import('./commands/snapshots.ts')).defineSnapshots(command),
    defaultAction: 'list',
  },
  image: {
    summary: 'builds an image from its recipe, or imports an OCI image, on this host',
    define: async (command) => (await import('./commands/image.ts')).defineImage(command),
  },
  images: {
    summary: 'lists what machines can be created from',
    define: async (command) => (await import('./commands/images.ts')).defineImages(command),
  },
  quotas: {
    summary: 'shows what the account uses and may use',
    define: async (command) => (await import('./commands/quotas.ts')).defineQuotas(command),
  },
  activity: {
    summary: 'shows what was done: sandbar activity [MACHINE]',
    define: async (command) => (await import('./commands/activity.ts')).defineActivity(command),
  },
  admin: {
    summary: 'accounts and hosts, for the operator: sandbar admin account list',
    define: async (command) => (await import('./commands/admin.ts')).defineAdmin(command),
  },
  doctor: {
    summary: 'checks the whole service for the operator, and repairs it: sandbar doctor --fix',
    define: async (command) => (await import('./commands/doctor.ts')).defineDoctor(command),
  },
};

/** Defines all commands by name and summary, and completely the one that is called. Loading them all takes longer. */
async function defineProgram(called: string | undefined): Promise<void> {
  program
    .name('sandbar')
    .usage('COMMAND [OPTIONS]')
    .version(VERSION, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'tell what there is')
    .helpCommand('help [command]', 'tell more of a command')
    .addHelpText(
      'after',
      `
sandbar COMMAND --help tells more. --json prints what the API answered.
The service and the key: SANDBAR_BASE_URL and SANDBAR_API_KEY, else credentials.json of the service on this computer.`,
    )
    // Options of a command are read by that command only, so `sandbar run -- ls --help` asks ls for its help.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: () => {} });
  for (const [name, { summary, define }] of Object.entries(COMMANDS)) {
    const command = program.command(name).description(summary);
    if (name === called) await define(command);
  }
}

/** What commander is to parse: `help X` as `X --help`, and a group without a subcommand with its default one. */
function normalize(args: readonly string[]): string[] {
  const [first = '', second, ...rest] = args;
  if (first === 'help') return second === undefined ? ['--help'] : [second, ...rest, '--help'];
  const defaultAction = Object.hasOwn(COMMANDS, first) ? COMMANDS[first]?.defaultAction : undefined;
  const hasAction = second !== undefined && (!second.startsWith('-') || second === '-h' || second === '--help');
  return defaultAction === undefined || hasAction ? [...args] : [first, defaultAction, ...args.slice(1)];
}

/** `sandbar machines stop` for the arguments of such a command: where its help is. */
function findCalled(args: readonly string[]): string {
  const names = ['sandbar'];
  let commands: readonly { name: () => string; aliases: () => string[]; commands: typeof commands }[] =
    program.commands;
  for (const arg of args) {
    const next = commands.find((command) => command.name() === arg || command.aliases().includes(arg));
    if (next === undefined) break;
    names.push(next.name());
    commands = next.commands;
  }
  return names.join(' ');
}

/** Exit code: 0 done, 1 refused or failed, 2 a wrong command line; `run` and `exec` set that of their command. */
async function main(given: readonly string[]): Promise<void> {
  const args = normalize(given);
  try {
    await defineProgram(args[0]);
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return;
    process.exitCode = error instanceof CommanderError || error instanceof UsageError ? 2 : 1;
    // Commander has printed the help of a group that was called without a subcommand.
    if (error instanceof CommanderError && error.code === 'commander.help') return;
    if (error instanceof CommanderError) printNotice(explainUsage(error, findCalled(args)));
    else console.error(`sandbar: ${describe(error)}`);
  }
}

/** `unknown option '--nam' (Did you mean --name?); sandbar machines update --help tells more`. */
function explainUsage(error: CommanderError, called: string): string {
  const problem = error.message
    .replace(/^error: /, '')
    .replaceAll('\n', ' ')
    .replace(/\.$/, '');
  return `${problem}; ${called} --help tells more`;
}

function describe(error: unknown): string {
  if (error instanceof ConnectionError) {
    return toPrintable(`${error.message}; start it with npm start in the Sandbar checkout`);
  }
  if (error instanceof ApiError) {
    // A refusal explains itself. A fault of the service is looked up in its log by the request id.
    const request = error.status >= 500 && error.requestId !== null ? ` [request ${error.requestId}]` : '';
    return toPrintable(`${error.message}${request}`);
  }
  const isPlain = [ConfigurationError, UsageError, AdminSocketError].some((kind) => error instanceof kind);
  if (error instanceof Error && isPlain) return toPrintable(error.message);
  // A bug of ours: its stack has lines of its own.
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return text.split('\n').map(toPrintable).join('\n');
}

// A reader that closes the pipe has seen enough (`sandbar ... | head`): no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

await main(process.argv.slice(2));
