// Runs the checks that need no service: the TypeScript types, the style, the tests of the guest agent, and the checks and
// unit tests of the Python SDK.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { goEnvironment } from '@sandbar/host-agent/images/agent.ts';
import type { Progress } from '@sandbar/service/progress.ts';

export type CheckTools = {
  go: { path: string; cacheDir: string };
  /** The Python with the packages of sdk-python/requirements-dev.txt. The other checks do not wait for it. */
  python: Promise<string>;
};

type Check = [name: string, command: readonly string[], cwd: string];

/**
 * Runs all checks and prints the output of those that fail. Resolves with the names of the failed checks. The checks of
 * the Python SDK run at the same time as the others. Throws Problem when there is no Python for them.
 */
export async function runStaticChecks(
  checkout: string,
  { go, python }: CheckTools,
  progress: Progress,
  signal: AbortSignal,
): Promise<string[]> {
  const bin = (name: string) => path.join(checkout, 'node_modules', '.bin', name);
  const guestAgent = path.join(checkout, 'guest-agent');
  const checks: Check[] = [
    ['typecheck', [bin('tsc'), '--noEmit'], checkout],
    ['typecheck of the dashboard', [bin('tsc'), '--noEmit', '-p', 'packages/dashboard'], checkout],
    ['typecheck of the browser tests', [bin('tsc'), '--noEmit', '-p', 'tests/browser'], checkout],
    ['typecheck of the benchmarks of the dashboard', [bin('tsc'), '--noEmit', '-p', 'bench/dashboard'], checkout],
    ['lint', [bin('biome'), 'check', '.'], checkout],
    ['go vet', [go.path, 'vet', './...'], guestAgent],
    ['go test', [go.path, 'test', './...'], guestAgent],
  ];
  progress.say('Static checks');
  const run = (some: readonly Check[]) => runInTurn(some, goEnvironment(go.cacheDir), progress, signal);
  const failed = await Promise.all([run(checks), python.then((program) => run(pythonChecks(checkout, program)))]);
  return failed.flat();
}

function pythonChecks(checkout: string, python: string): Check[] {
  const sdk = path.join(checkout, 'sdk-python');
  return [
    ['lint of the Python SDK', [python, '-m', 'ruff', 'check', '--no-cache', '.'], sdk],
    ['format of the Python SDK', [python, '-m', 'ruff', 'format', '--no-cache', '--check', '.'], sdk],
    ['types of the Python SDK', [python, '-m', 'mypy', '--cache-dir=/dev/null'], sdk],
    ['tests of the Python SDK', [python, '-B', '-m', 'pytest', '-q'], sdk],
  ];
}

async function runInTurn(
  checks: readonly Check[],
  env: NodeJS.ProcessEnv,
  progress: Progress,
  signal: AbortSignal,
): Promise<string[]> {
  const failed: string[] = [];
  for (const [name, command, cwd] of checks) {
    const hasPassed = await progress
      .step(name, () => runCheck(command, cwd, env, signal))
      .catch((error: unknown) => {
        signal.throwIfAborted();
        console.log(error instanceof Error ? error.message : error);
        return false;
      });
    if (!hasPassed) failed.push(name);
  }
  return failed;
}

async function runCheck(
  command: readonly string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<true> {
  const [program = '', ...args] = command;
  // tsc and biome run the first `node` on the PATH, so put the node that runs this program first.
  const searchPath = `${path.dirname(process.execPath)}:${process.env.PATH}`;
  const child = spawn(program, args, {
    cwd,
    signal,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env, PATH: searchPath },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => (code === 0 ? resolve(true) : reject(new Error(output.trimEnd()))));
  });
}
