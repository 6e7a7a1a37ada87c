// The command line: finds the command, runs it, and turns what it throws into one line and an exit code.
import { ApiError, ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { AdminSocketError } from './admin-socket-error.ts';
import type { Command } from './command.ts';
import { UsageError } from './usage-error.ts';

const VERSION = '0.1.0';
/** By name, in the order of the help. Only the one that runs is loaded: a short command is done sooner than all of them are. */
const COMMANDS = {
  run: async (): Promise<Command> => (await import('./commands/run.ts')).run,
  exec: async (): Promise<Command> => (await import('./commands/exec.ts')).exec,
  machines: async (): Promise<Command> => (await import('./commands/machines.ts')).machines,
  volumes: async (): Promise<Command> => (await import('./commands/volumes.ts')).volumes,
  snapshots: async (): Promise<Command> => (await import('./commands/snapshots.ts')).snapshots,
  image: async (): Promise<Command> => (await import('./commands/image.ts')).image,
  images: async (): Promise<Command> => (await import('./commands/images.ts')).images,
  quotas: async (): Promise<Command> => (await import('./commands/quotas.ts')).quotas,
  activity: async (): Promise<Command> => (await import('./commands/activity.ts')).activity,
  admin: async (): Promise<Command> => (await import('./commands/admin.ts')).admin,
  doctor: async (): Promise<Command> => (await import('./commands/doctor.ts')).doctor,
};

async function writeHelp(): Promise<string> {
  const commands = await Promise.all(Object.values(COMMANDS).map((load) => load()));
  return `Usage: sandbar COMMAND [OPTIONS]

${commands.map(({ name, summary }) => `  ${name.padEnd(10)} ${summary}`).join('\n')}

  sandbar COMMAND --help tells more. --json prints what the API answered. --version prints the version.
The service and the key: SANDBAR_BASE_URL and SANDBAR_API_KEY, else credentials.json of the service on this machine.`;
}

async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined) {
    console.error(await writeHelp());
    return 2;
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    console.log(await writeHelp());
    return 0;
  }
  if (name === '--version' || name === '-v') {
    console.log(VERSION);
    return 0;
  }
  if (!isCommand(name)) throw new UsageError(`there is no command "${name}"; sandbar --help lists them`);
  const command = await COMMANDS[name]();
  const end = rest.indexOf('--');
  const own = end < 0 ? rest : rest.slice(0, end);
  if (own.includes('--help') || own.includes('-h')) {
    console.log(command.help);
    return 0;
  }
  return command.run(rest);
}

const isCommand = (name: string): name is keyof typeof COMMANDS => Object.hasOwn(COMMANDS, name);

function describe(error: unknown): string {
  if (error instanceof ConnectionError) return `${error.message}; start it with npm start in the Sandbar checkout`;
  if (error instanceof ApiError) {
    // A refusal explains itself; a fault of the service is looked up by its request id.
    const request = error.status >= 500 && error.requestId !== null ? ` [request ${error.requestId}]` : '';
    return `${error.message}${request}`;
  }
  const isPlain = [ConfigurationError, UsageError, AdminSocketError].some((kind) => error instanceof kind);
  if (error instanceof Error && isPlain) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

// A reader that has seen enough (`sandbar ... | head`) is no error of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(`sandbar: ${describe(error)}`);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
