// The entry of the CLI: finds the command, runs it, and turns an error into one line on stderr and an exit code.
import { type Command, CommanderError, program } from '@commander-js/extra-typings';
import { ApiError, ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { AdminSocketError } from './admin-socket-error.ts';
import { UsageError } from './arguments.ts';
import { CopyError } from './copy-error.ts';
import { printNotice, toPrintable } from './print.ts';

const VERSION = '0.1.0';

type Entry = {
  /** The description in `sandbar --help`. */
  summary: string;
  /** Loads the module of the command and adds its options, subcommands and action. */
  define: (command: Command) => Promise<void>;
  /** The subcommand to run when none is given. */
  defaultAction?: string;
};

/** All commands by name, in the order in which the help lists them. */
const COMMANDS: Record<string, Entry> = {
  run: {
    summary: 'runs a command in a machine of its own: sandbar run -- uname -a',
    define: async (command) => (await import('./commands/run.ts')).defineRun(command),
  },
  exec: {
    summary: 'runs a command in a machine: sandbar exec MACHINE -- ls /',
    define: async (command) => (await import('./commands/exec.ts')).defineExec(command),
  },
  cp: {
    summary: 'copies files and folders: sandbar cp FILE MACHINE:/path, or the other way',
    define: async (command) => (await import('./commands/cp.ts')).defineCp(command),
  },
  files: {
    summary: 'lists, prints, deletes, makes, moves and watches files in a machine',
    define: async (command) => (await import('./commands/files.ts')).defineFiles(command),
  },
  shell: {
    summary: 'opens a terminal in a machine: sandbar shell MACHINE',
    define: async (command) => (await import('./commands/shell.ts')).defineShell(command),
  },
  ports: {
    summary: 'lists the open ports of a machine, and makes one public: sandbar ports MACHINE',
    define: async (command) => (await import('./commands/ports.ts')).definePorts(command),
  },
  forward: {
    summary: 'listens on this computer for a port of a machine: sandbar forward MACHINE 8000[:80]',
    define: async (command) => (await import('./commands/forward.ts')).defineForward(command),
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
  usage: {
    summary: 'shows what was used and what that cost: sandbar usage --by day',
    define: async (command) => (await import('./commands/usage.ts')).defineUsage(command),
  },
  ledger: {
    summary: 'shows what changed the wallet, and what a charge consists of: sandbar ledger [ENTRY]',
    define: async (command) => (await import('./commands/ledger.ts')).defineLedger(command),
  },
  admin: {
    summary: 'accounts, prices and hosts, for the operator: sandbar admin account list',
    define: async (command) => (await import('./commands/admin.ts')).defineAdmin(command),
  },
  doctor: {
    summary: 'checks the whole service for the operator, and repairs it: sandbar doctor --fix',
    define: async (command) => (await import('./commands/doctor.ts')).defineDoctor(command),
  },
};

/** Defines every command by name and summary, and loads only the one that was called, because loading takes time. */
async function defineProgram(called: string | undefined): Promise<void> {
  program
    .name('sandbar')
    .usage('COMMAND [OPTIONS]')
    .version(VERSION, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'show this help')
    .helpCommand('help [command]', 'show the help of a command')
    .addHelpText(
      'after',
      `
sandbar COMMAND --help tells more. --json prints the answer of the API.
SANDBAR_BASE_URL and SANDBAR_API_KEY name the service and the key; the default is credentials.json of the service on
this computer.`,
    )
    // Each command parses only the arguments after its own name, so in `sandbar run -- ls --help` ls gets the option.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: () => {} });
  for (const [name, { summary, define }] of Object.entries(COMMANDS)) {
    const command = program.command(name).description(summary);
    if (name === called) await define(command);
  }
}

/**
 * Rewrites `help X` to `X --help`, and adds the default subcommand where none is given: `machines` is `machines list`.
 */
function normalize(args: readonly string[]): string[] {
  const [first = '', second, ...rest] = args;
  if (first === 'help') return second === undefined ? ['--help'] : [second, ...rest, '--help'];
  const defaultAction = Object.hasOwn(COMMANDS, first) ? COMMANDS[first]?.defaultAction : undefined;
  const hasAction = second !== undefined && (!second.startsWith('-') || second === '-h' || second === '--help');
  return defaultAction === undefined || hasAction ? [...args] : [first, defaultAction, ...args.slice(1)];
}

/** The full name of the command in the arguments, such as `sandbar machines stop`. */
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

/** Sets the exit code: 1 after an error, 2 after a wrong command line. Commands like `run` set others by themselves. */
async function main(given: readonly string[]): Promise<void> {
  const args = normalize(given);
  try {
    await defineProgram(args[0]);
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return;
    process.exitCode = error instanceof CommanderError || error instanceof UsageError ? 2 : 1;
    // A group such as `sandbar image` was called without a subcommand, and commander has printed its help.
    if (error instanceof CommanderError && error.code === 'commander.help') return;
    if (error instanceof CommanderError) printNotice(explainUsage(error, findCalled(args)));
    else console.error(`sandbar: ${describe(error)}`);
  }
}

/** For example: `unknown option '--nam' (Did you mean --name?); sandbar machines update --help tells more`. */
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
    // For a fault of the service, the operator finds the cause in the log by the request id.
    const request = error.status >= 500 && error.requestId !== null ? ` [request ${error.requestId}]` : '';
    return toPrintable(`${error.message}${request}`);
  }
  const isPlain = [ConfigurationError, UsageError, AdminSocketError, CopyError].some((kind) => error instanceof kind);
  if (error instanceof Error && isPlain) return toPrintable(error.message);
  // A bug of the CLI: print the stack, line by line.
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return text.split('\n').map(toPrintable).join('\n');
}

// When the reader closes the pipe, as in `sandbar ... | head`, stop without an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

await main(process.argv.slice(2));
