// The entry of the CLI: finds the command, runs it, and turns an error into one line on stderr and an exit code.
import { type Command, CommanderError, createCommand } from '@commander-js/extra-typings';
import { describeError, explainUsage } from './error-text.ts';
import { addExamples } from './examples.ts';
import { EXIT_CODES, exitCodeOfError } from './exit-codes.ts';
import { Interrupted, interrupt } from './interruption.ts';
import { withPresentNames } from './old-names.ts';
import { printNotice } from './print.ts';

const VERSION = '0.1.0';

type Entry = {
  /** The description in `sandbar --help`. */
  summary: string;
  /** Loads the module of the command and adds its options, subcommands and action. `program` has all commands. */
  define: (command: Command, program: Command) => Promise<void>;
  /** Whether the help leaves the command out. */
  isHidden?: true;
};

/** All commands by name, in the order in which the help lists them. */
export const COMMANDS: Record<string, Entry> = {
  up: {
    summary: 'starts the service of this checkout, and waits until it is ready',
    define: async (command) => (await import('./commands/up.ts')).defineUp(command),
  },
  down: {
    summary: 'stops the service on this computer',
    define: async (command) => (await import('./commands/down.ts')).defineDown(command),
  },
  status: {
    summary: 'says whether the service on this computer runs and is well',
    define: async (command) => (await import('./commands/status.ts')).defineStatus(command),
  },
  uninstall: {
    summary: 'removes the service from this computer: sandbar uninstall --purge',
    define: async (command) => (await import('./commands/uninstall.ts')).defineUninstall(command),
  },
  host: {
    summary: 'makes this computer a host of a fleet: sandbar host join, sandbar host run',
    define: async (command) => (await import('./commands/host.ts')).defineHost(command),
  },
  run: {
    summary: 'runs a command in a machine of its own: sandbar run -- uname -a',
    define: async (command) => (await import('./commands/run.ts')).defineRun(command),
  },
  exec: {
    summary: 'runs a command in a machine: sandbar exec MACHINE -- ls /',
    define: async (command) => (await import('./commands/exec.ts')).defineExec(command),
  },
  jobs: {
    summary: 'lists the jobs of a machine: sandbar jobs MACHINE',
    define: async (command) => (await import('./commands/jobs.ts')).defineJobs(command),
  },
  logs: {
    summary: 'prints the output of a job: sandbar logs MACHINE JOB -f',
    define: async (command) => (await import('./commands/logs.ts')).defineLogs(command),
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
  ls: {
    summary: 'lists all machines, as sandbar machine ls does',
    define: async (command) => (await import('./commands/machine-ls.ts')).defineMachineLs(command, 'ls'),
  },
  machine: {
    summary: 'creates, lists, shows, starts, stops, changes and destroys machines',
    define: async (command) => (await import('./commands/machine.ts')).defineMachine(command),
  },
  volume: {
    summary: 'creates, lists, attaches, detaches and deletes volumes',
    define: async (command) => (await import('./commands/volume.ts')).defineVolume(command),
  },
  snapshot: {
    summary: 'takes, lists, restores and deletes snapshots',
    define: async (command) => (await import('./commands/snapshot.ts')).defineSnapshot(command),
  },
  image: {
    summary: 'lists images, builds one from its recipe, or imports an OCI image',
    define: async (command) => (await import('./commands/image.ts')).defineImage(command),
  },
  key: {
    summary: 'creates, lists and revokes API keys',
    define: async (command) => (await import('./commands/key.ts')).defineKey(command),
  },
  quota: {
    summary: 'shows what the account uses and may use',
    define: async (command) => (await import('./commands/quota.ts')).defineQuota(command),
  },
  activity: {
    summary: 'shows what was done: sandbar activity [MACHINE] [-f]',
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
  whoami: {
    summary: 'shows the account, the service and the origin of the key that are used',
    define: async (command) => (await import('./commands/whoami.ts')).defineWhoami(command),
  },
  login: {
    summary: 'gets a key that you approve in the dashboard: sandbar login https://sandbar.example.com',
    define: async (command) => (await import('./commands/login.ts')).defineLogin(command),
  },
  logout: {
    summary: 'removes the key of sandbar login from this computer',
    define: async (command) => (await import('./commands/logout.ts')).defineLogout(command),
  },
  api: {
    summary: 'sends any request of the API: sandbar api GET /v1/machines',
    define: async (command) => (await import('./commands/api.ts')).defineApi(command),
  },
  mcp: {
    summary: 'serves machines to AI agents as tools, by the Model Context Protocol: sandbar mcp',
    define: async (command) => (await import('./commands/mcp.ts')).defineMcp(command),
  },
  completion: {
    summary: 'prints a script that completes commands in your shell: sandbar completion bash',
    define: async (command) => (await import('./commands/completion.ts')).defineCompletion(command),
  },
  __complete: {
    summary: 'answers the script of sandbar completion',
    isHidden: true,
    define: async (command, program) => {
      const { defineComplete } = await import('./commands/completion.ts');
      const define = async (name: string) => {
        const called = program.commands.find((one) => one.name() === name);
        if (called) await COMMANDS[name]?.define(called as Command, program);
      };
      defineComplete(command, program, define);
    },
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

/**
 * Makes the program. Every command gets its name and summary, but only the commands that `isCalled` chooses are loaded
 * completely, because loading takes time.
 */
export async function defineProgram(isCalled: (name: string) => boolean): Promise<Command> {
  const program = createCommand('sandbar')
    .usage('COMMAND [OPTIONS]')
    .version(VERSION, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'show this help')
    .helpCommand('help [command]', 'show the help of a command')
    .addHelpText('after', helpText)
    // Options after the name of a command belong to that command, and not to `sandbar`.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: () => {} });
  addExamples(program, 'sandbar run -- uname -a', 'sandbar machine create --name web', 'sandbar exec web -- ls /');
  for (const [name, { summary, define, isHidden = false }] of Object.entries(COMMANDS)) {
    const command = program.command(name, { hidden: isHidden }).description(summary);
    if (isCalled(name)) await define(command, program);
  }
  return program;
}

function helpText(): string {
  const codes = EXIT_CODES.map(({ code, meaning }) => `  ${`${code}`.padStart(3)}  ${meaning}`).join('\n');
  return `
sandbar COMMAND --help tells more. Machines, volumes and snapshots are named by id, by the first characters of the id (4 or
more) or by name. Data goes to standard output and messages to standard error; --json prints the answer of the API.
SANDBAR_BASE_URL and SANDBAR_API_KEY name the service and the key; the default is what sandbar login has stored, and then
credentials.json of the service on this computer. NO_COLOR turns colours off.

Exit codes (run, exec and logs -f end with the code of the command in the machine):
${codes}`;
}

/** Rewrites `help X` to `X --help`, and the former names of commands to the present ones. */
function normalize(args: readonly string[]): string[] {
  const [first, ...rest] = args;
  if (first !== 'help') return withPresentNames(args);
  return [...withPresentNames(rest), '--help'];
}

/** The full name of the command in the arguments, such as `sandbar machine stop`. */
function findCalled(program: Command, args: readonly string[]): string {
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

/**
 * Ends the command when it cannot write its output: with exit code 0 when the reader closed the pipe, as in
 * `sandbar ... | head`, and with 1 after any other error. A command that has to clean up does so first.
 */
function endWithOutput(): void {
  const interruptBy = ({ code = 'an error of the output' }: NodeJS.ErrnoException): boolean =>
    interrupt(new Interrupted(code, code === 'EPIPE' ? 0 : 1));
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (!interruptBy(error)) process.exit(error.code === 'EPIPE' ? 0 : 1);
  });
  // Without a listener, an error of stderr would end the process. A command that has no clean-up to do goes on, and its
  // messages are lost.
  process.stderr.on('error', interruptBy);
}

/** Runs a command line, and sets the exit code after an error. Commands such as `run` set their own exit codes. */
export async function main(given: readonly string[]): Promise<void> {
  endWithOutput();
  const args = normalize(given);
  const program = await defineProgram((name) => name === args[0]);
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    const exitCode = exitCodeOfError(error);
    // The command has cleaned up. Exit now, because a request that nobody waits for would keep the process running.
    if (error instanceof Interrupted) process.exit(exitCode);
    if (exitCode !== 0) process.exitCode = exitCode;
    report(error, findCalled(program, args));
  }
}

function report(error: unknown, called: string): void {
  if (!(error instanceof CommanderError)) {
    console.error(`sandbar: ${describeError(error, called)}`);
    return;
  }
  // Commander has printed the version or the help already. It also prints the help of a group, such as `sandbar image`,
  // that is called without a subcommand.
  if (error.exitCode === 0 || error.code === 'commander.help') return;
  printNotice(explainUsage(error, called));
}
