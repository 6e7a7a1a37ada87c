// Runs a program as a user would, without the Node options of the test process.
import { execFile } from 'node:child_process';

export type Said = { code: number; stdout: string; stderr: string };

/** Runs a program to its end. Rejects only when it cannot be started. */
export function run(
  program: string,
  args: readonly string[],
  options: { cwd: string; env?: NodeJS.ProcessEnv },
): Promise<Said> {
  const env = { ...process.env, NODE_OPTIONS: '', NO_COLOR: '1', ...options.env };
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { cwd: options.cwd, env, maxBuffer: 1 << 26 }, (error, stdout, stderr) => {
      if (error && child.pid === undefined) reject(error);
      else resolve({ code: child.exitCode ?? 128, stdout, stderr });
    });
    child.stdin?.end();
  });
}

/** An environment in which a client without options finds no service. `home`: where runtimes may keep their cache. */
export const withoutService = (home: string): NodeJS.ProcessEnv => ({
  SANDBAR_BASE_URL: undefined,
  SANDBAR_API_KEY: undefined,
  SANDBAR_HOME: '/dev/null/absent',
  HOME: home,
});
