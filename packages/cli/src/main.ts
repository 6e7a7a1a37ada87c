// The command line: finds the command, runs it, and turns what it throws into one line and an exit code.
import { ApiError, ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { AdminSocketError } from './admin-socket.ts';
import type { Command } from './command.ts';
import { activity } from './commands/activity.ts';
import { admin } from './commands/admin.ts';
import { doctor } from './commands/doctor.ts';
import { exec } from './commands/exec.ts';
import { images } from './commands/images.ts';
import { machines } from './commands/machines.ts';
import { quotas } from './commands/quotas.ts';
import { run } from './commands/run.ts';
import { volumes } from './commands/volumes.ts';
import { UsageError } from './usage-error.ts';

const VERSION = '0.1.0';
const COMMANDS: readonly Command[] = [run, exec, machines, volumes, images, quotas, activity, admin, doctor];

const HELP = `Usage: sandbar COMMAND [OPTIONS]

${COMMANDS.map(({ name, summary }) => `  ${name.padEnd(10)} ${summary}`).join('\n')}

  sandbar COMMAND --help tells more. --json prints what the API answered. --version prints the version.
The service and the key: SANDBAR_BASE_URL and SANDBAR_API_KEY, else credentials.json of the service on this machine.`;

async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined) {
    console.error(HELP);
    return 2;
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    console.log(HELP);
    return 0;
  }
  if (name === '--version' || name === '-v') {
    console.log(VERSION);
    return 0;
  }
  const command = COMMANDS.find((candidate) => candidate.name === name);
  if (command === undefined) throw new UsageError(`there is no command "${name}"; sandbar --help lists them`);
  const end = rest.indexOf('--');
  const own = end < 0 ? rest : rest.slice(0, end);
  if (own.includes('--help') || own.includes('-h')) {
    console.log(command.help);
    return 0;
  }
  return command.run(rest);
}

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
