// Runs the checks that need no service: the TypeScript types, the style, and the tests of the guest agent.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { goEnvironment } from '@sandbar/host-agent/images/agent.ts';
import type { Progress } from '@sandbar/service/progress.ts';

/** Runs all checks and prints the output of those that fail. Resolves with the names of the failed checks. */
export async function runStaticChecks(
  checkout: string,
  go: { path: string; cacheDir: string },
  progress: Progress,
  signal: AbortSignal,
): Promise<string[]> {
  const bin = (name: string) => path.join(checkout, 'node_modules', '.bin', name);
  const guestAgent = path.join(checkout, 'guest-agent');
  const checks: readonly [name: string, command: readonly string[], cwd: string][] = [
    ['typecheck', [bin('tsc'), '--noEmit'], checkout],
    ['typecheck of the dashboard', [bin('tsc'), '--noEmit', '-p', 'packages/dashboard'], checkout],
    ['typecheck of the browser tests', [bin('tsc'), '--noEmit', '-p', 'tests/browser'], checkout],
    ['typecheck of the benchmarks of the dashboard', [bin('tsc'), '--noEmit', '-p', 'bench/dashboard'], checkout],
    ['lint', [bin('biome'), 'check', '.'], checkout],
    ['go vet', [go.path, 'vet', './...'], guestAgent],
    ['go test', [go.path, 'test', './...'], guestAgent],
  ];
  progress.say('Static checks');
  const failed: string[] = [];
  for (const [name, command, cwd] of checks) {
    const hasPassed = await progress
      .step(name, () => runCheck(command, cwd, goEnvironment(go.cacheDir), signal))
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
