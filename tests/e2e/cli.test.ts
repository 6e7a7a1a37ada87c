// Tests the `sandbar` command against the running service.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { expectStatus, until } from './support/service.ts';

const CLI = new URL('../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;

function sandbar(args: string[], input = ''): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [CLI, ...args]);
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (said.stdout += chunk));
  child.stderr.on('data', (chunk) => (said.stderr += chunk));
  child.stdin.end(input);
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...said })));
}

async function machineCount(): Promise<number> {
  return (await expectStatus<{ machines: Machine[] }>(200, 'GET', '/v1/machines')).machines.length;
}

describe('sandbar', () => {
  it('run prints what the command prints and leaves no machine', async () => {
    const before = await machineCount();
    const { code, stdout } = await sandbar(['run', '--memory', '256', '--', 'uname', '-a']);
    assert.equal(code, 0);
    assert.match(stdout, /^Linux .*cloud-amd64.*GNU\/Linux\n$/);
    assert.equal(await machineCount(), before);
  });

  it("run ends with the command's exit code and passes stdin and stderr", async () => {
    const { code, stdout, stderr } = await sandbar(
      ['run', '--memory', '256', '-i', '--', 'sh', '-c', 'cat; echo oops >&2; exit 42'],
      'piped',
    );
    assert.deepEqual([code, stdout], [42, 'piped']);
    assert.match(stderr, /oops/);
  });

  it('an unknown option is named in one line, and the exit code is 1 or 2', async () => {
    const { code, stderr } = await sandbar(['run', '--no-such-option']);
    assert.ok(code === 1 || code === 2);
    assert.match(stderr, /no-such-option/);
  });

  it('Ctrl-C while the machine is being created leaves no machine', async () => {
    const name = 'interrupted-create';
    const named = async () =>
      (await expectStatus<{ machines: Machine[] }>(200, 'GET', `/v1/machines?name=${name}`)).machines;
    const child = spawn(process.execPath, [CLI, 'run', '--memory', '256', '--name', name, '--', 'sleep', '100']);
    const ended = new Promise((resolve) => child.on('close', resolve));
    await until('the create is under way', async () => (await named()).length > 0);
    child.kill('SIGINT');
    assert.equal(await ended, 130);
    assert.deepEqual(await named(), []);
  });
});
