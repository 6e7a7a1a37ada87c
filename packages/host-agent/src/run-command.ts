// Runs a program of the host to its end, with a clear error when it fails.
import { spawn } from 'node:child_process';

/** A program failed or could not be started. The message has the command line and the end of its error output. */
export class CommandError extends Error {}

/** Returns PATH plus the sbin folders, which contain mkfs.ext4 and ip and are not on the PATH of every account. */
function searchPath(): string {
  return `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/local/sbin:/usr/sbin:/sbin`;
}

/**
 * Runs the program and resolves with its standard output. `input` is written to its standard input. Throws
 * {@link CommandError} when it cannot be started or exits with another code than 0.
 */
export function runCommand(
  program: string,
  args: readonly string[],
  options: { input?: string } = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'pipe', env: { ...process.env, PATH: searchPath() } });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
    });
    child.stderr.on('data', (chunk) => {
      stderr += chunk;
    });
    child.on('error', (error) => reject(new CommandError(`${program} cannot be run: ${error.message}`)));
    child.on('close', (code) => {
      if (code === 0) resolve(stdout);
      else
        reject(
          new CommandError(
            `${[program, ...args].join(' ')} failed: ${stderr.trim().slice(-500) || `exit code ${code}`}`,
          ),
        );
    });
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
  });
}
