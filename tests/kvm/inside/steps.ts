// Helpers of the KVM test: steps that print their duration, and jobs that must succeed.
import assert from 'node:assert/strict';
import type { Client } from '@sandbar/sdk/client.ts';

let done = 0;

/** The number of steps that succeeded so far. */
export const stepsDone = () => done;

/** Runs a step and prints how long it took. Adds the name of the step to its error. */
export async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const began = performance.now();
  const result = await work().catch((error: unknown) => {
    throw new Error(`${name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  });
  done++;
  console.log(`ok ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
  return result;
}

/** Runs a command in a machine and returns its standard output. Throws when its exit code is not 0. */
export async function outputOf(sandbar: Client, machineId: string, command: string): Promise<string> {
  const job = await sandbar.execs.start(machineId, { command });
  const ended = await sandbar.execs.wait(machineId, job.id);
  const [stdout = '', stderr = ''] = await Promise.all(
    (['stdout', 'stderr'] as const).map(async (stream) => {
      const page = await sandbar.execs.output(machineId, job.id, { stream });
      return Buffer.from(page.data, 'base64').toString();
    }),
  );
  assert.equal(`${ended.status} ${ended.exit_code}`, 'exited 0', `${command}: ${stdout}${stderr}`);
  return stdout;
}
