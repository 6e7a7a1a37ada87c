// Runs a program of the host to its end, and says clearly what went wrong when it fails.
import { spawn } from 'node:child_process';

/** A program that failed or could not be run: the command line and the last of what it said. */
export class CommandError extends Error {}

/** The tools of a system administrator (mkfs.ext4, ip) are not on the PATH of every account. */
function searchPath(): string {
  return `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/local/sbin:/usr/sbin:/sbin`;
}

/** Resolves with standard output. Throws {@link CommandError}. `input` is written to its standard input. */
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
