// Runs shell commands in the machine of a test account.
import assert from 'node:assert/strict';
import type { Exec, ExecOutput } from '@sandbar/contract/exec.ts';
import type { TestAccount } from '../../e2e/support/accounts.ts';

/** Runs a command, waits for its end and returns what it printed, at most 1 MiB. Throws when its exit code is not 0. */
export async function run({ call }: TestAccount, machineId: string, command: string): Promise<string> {
  const execs = `/v1/machines/${machineId}/execs`;
  let job = await call<Exec>('POST', execs, { command });
  while (job.status === 'running') job = await call<Exec>('GET', `${execs}/${job.id}?wait_ms=10000`);
  const read = async (stream: string) => {
    const page = await call<ExecOutput>('GET', `${execs}/${job.id}/output?stream=${stream}&limit=1048576&wait_ms=1000`);
    return Buffer.from(page.data, 'base64').toString();
  };
  assert.equal(job.exit_code, 0, `${command}: ${await read('stderr')}`);
  return read('stdout');
}
