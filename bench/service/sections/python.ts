// Runs small Python programs in a machine, for measurements inside the guest.
import type { Exec } from '@sandbar/contract/exec.ts';
import type { Client } from '@sandbar/sdk/client.ts';

export function startPython(
  sandbar: Client,
  machineId: string,
  program: string,
  args: readonly string[] = [],
): Promise<Exec> {
  return sandbar.execs.start(machineId, { argv: ['python3', '-c', program, ...args] });
}

/** Waits until the program has ended and returns its standard output. Throws when it failed. */
export async function pythonOutput(sandbar: Client, machineId: string, jobId: string): Promise<string> {
  const { status, exit_code: exitCode } = await sandbar.execs.wait(machineId, jobId);
  const stream = exitCode === 0 ? 'stdout' : 'stderr';
  const page = await sandbar.execs.output(machineId, jobId, { stream });
  const text = Buffer.from(page.data, 'base64').toString();
  if (exitCode !== 0) throw new Error(`a program in the guest ended as ${status} with ${exitCode}: ${text}`);
  return text;
}
