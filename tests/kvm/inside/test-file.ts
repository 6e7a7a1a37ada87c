// Runs one file of the end-to-end tests as `npm test` does: with a service of its own, which is then checked for
// leftovers. A test file does not check whether it runs on KVM, so the service is told to use only KVM.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { CHECKOUT, environment, makeTemporaryFolder } from './slow-host.ts';
import type { Outcome } from './verdict.ts';

/** Longest time for one file. It is shorter than the silence that the process outside accepts. */
const LIMIT_MS = 840_000;

/** Resolves with the outcome, also when tests failed. */
export async function runTestFile(file: string): Promise<Outcome> {
  const env = environment();
  makeTemporaryFolder(env);
  const runner = path.join(CHECKOUT, 'packages', 'test-runner', 'src', 'main.ts');
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', runner, file], {
    cwd: CHECKOUT,
    // With this setting the service refuses to start when machines would not use KVM.
    env: { ...env, SANDBAR_ACCELERATOR: 'kvm' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const outcome: Outcome = { part: file, summary: '', skipped: [] };
  const failures: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    console.log(line);
    outcome.summary = /^end-to-end tests: (.*)$/.exec(line)?.[1] ?? outcome.summary;
    const skipped = /^\s*﹣ (.*) # (.*)$/.exec(line);
    if (skipped) outcome.skipped.push(`${skipped[1]}: ${skipped[2]}`);
    const failed = /^✖ (tests\/.*)$/.exec(line);
    if (failed?.[1]) failures.push(failed[1]);
  });
  let isLate = false;
  const limit = setTimeout(() => {
    isLate = true;
    child.kill('SIGKILL');
  }, LIMIT_MS);
  const [code, signal] = await once(child, 'close');
  clearTimeout(limit);
  if (isLate) outcome.failure = `it had not ended after ${LIMIT_MS / 1000} s`;
  else if (code !== 0) outcome.failure = failures.join('; ') || `npm test ended with ${signal ?? code}`;
  return outcome;
}
