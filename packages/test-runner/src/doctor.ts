// Runs `sandbar doctor` after the end-to-end tests. It must find no fault, whatever the tests did to the service.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { Problem } from '@sandbar/service/problem.ts';

/** How long the service may take to repair itself, even after a `kill -9`. SANDBAR_TEST_PATIENCE multiplies it. */
const WITHIN_MS = 30_000 * Number(process.env.SANDBAR_TEST_PATIENCE || 1);

/**
 * Repeats the audit until it finds no fault. If it still finds faults after the time limit, throws Problem with them.
 */
export async function waitForDoctor(checkout: string, home: string): Promise<void> {
  for (const until = performance.now() + WITHIN_MS; ; ) {
    const wrong = await askDoctor(checkout, home);
    if (wrong === undefined) return;
    if (performance.now() > until) throw new Problem(wrong);
  }
}

/**
 * Runs `sandbar doctor` on the data directory of a running service. Returns its output if it found a fault, else
 * undefined.
 */
async function askDoctor(checkout: string, home: string): Promise<string | undefined> {
  const cli = path.join(checkout, 'packages', 'cli', 'bin', 'sandbar.mjs');
  const child = spawn(process.execPath, [cli, 'doctor'], {
    env: { ...process.env, NODE_OPTIONS: '', SANDBAR_HOME: home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => said.push(text));
  const exitCode = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return exitCode === 0 ? undefined : `sandbar doctor ended with ${exitCode}:\n${said.join('').trimEnd()}`;
}
