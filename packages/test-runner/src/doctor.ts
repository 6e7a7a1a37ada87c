// The end of the end-to-end tests: whatever they did to the service, the operator's own audit finds nothing wrong with it.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { Problem } from '@sandbar/service/problem.ts';

/** In this time the service brings everything to an end by itself, also after a kill -9. */
const WITHIN_MS = 30_000;

/** Asks until all is well. Throws Problem with what the doctor says when it is not in time. */
export async function waitForDoctor(checkout: string, home: string): Promise<void> {
  for (const until = performance.now() + WITHIN_MS; ; ) {
    const wrong = await askDoctor(checkout, home);
    if (wrong === undefined) return;
    if (performance.now() > until) throw new Problem(wrong);
  }
}

/** Runs `sandbar doctor` on the data directory of a running service; undefined when all is well. */
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
