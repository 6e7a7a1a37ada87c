// Tests the `sandbar` command against the running service.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import { BASE_URL, expectStatus, until } from '../support/service.ts';

const CLI = new URL('../../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;

type Said = { code: number | null; stdout: string; stderr: string };

function sandbar(args: string[], input = '', env: NodeJS.ProcessEnv = {}): Promise<Said> {
  const child = spawn(process.execPath, [CLI, ...args], { env: { ...process.env, ...env } });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (said.stdout += chunk));
  child.stderr.on('data', (chunk) => (said.stderr += chunk));
  child.stdin.end(input);
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...said })));
}

/** Starts a server that notes the method and the path of each request, and passes it on to the service. */
async function startRelay(): Promise<{ url: string; requests: string[]; close: () => void }> {
  const requests: string[] = [];
  const server = createServer((incoming, answer) => {
    const { method, headers, url = '' } = incoming;
    requests.push(`${method} ${url}`);
    const passed = request(new URL(url, BASE_URL), { method, headers }, (response) => {
      answer.writeHead(response.statusCode ?? 500, response.headers);
      response.pipe(answer);
    });
    incoming.pipe(passed);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  return { url: `http://127.0.0.1:${port}`, requests, close: () => server.close() };
}

/** The machines with this name in the given state, by default in all states but destroyed. */
async function machinesNamed(name: string, state?: MachineState): Promise<Machine[]> {
  const query = new URLSearchParams({ name, ...(state === undefined ? {} : { state }) });
  return (await expectStatus<{ machines: Machine[] }>(200, 'GET', `/v1/machines?${query}`)).machines;
}

describe('sandbar', () => {
  it('run prints what the command prints and leaves no machine', async () => {
    // Other test files create machines in the same account at the same time, so look only for the one of this run.
    const name = `run-${randomUUID()}`;
    const { code, stdout } = await sandbar(['run', '--memory', '256', '--name', name, '--', 'uname', '-a']);
    assert.equal(code, 0);
    assert.match(stdout, /^Linux .*cloud-amd64.*GNU\/Linux\n$/);
    assert.deepEqual(await machinesNamed(name), []);
    assert.equal((await machinesNamed(name, 'destroyed')).length, 1);
  });

  it('run starts the command with a request that waits for its output, and merges it when told to', async () => {
    const relay = await startRelay();
    try {
      const merged = ['--merge-output', '--', 'sh', '-c', 'echo 1; echo 2 >&2; echo 3'];
      const said = await sandbar(['run', '--memory', '256', ...merged], '', { SANDBAR_BASE_URL: relay.url });
      assert.deepEqual(said, { code: 0, stdout: '1\n2\n3\n', stderr: '' });
      const [create, start] = relay.requests;
      assert.equal(create, 'POST /v1/machines');
      assert.match(start ?? '', /^POST .*\/execs\?wait_ms=\d+$/);
    } finally {
      relay.close();
    }
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
    const named = () => machinesNamed(name);
    const child = spawn(process.execPath, [CLI, 'run', '--memory', '256', '--name', name, '--', 'sleep', '100']);
    const ended = new Promise((resolve) => child.on('close', resolve));
    await until('the create is under way', async () => (await named()).length > 0);
    child.kill('SIGINT');
    assert.equal(await ended, 130);
    assert.deepEqual(await named(), []);
  });

  it('a run that is killed leaves a machine that ends by itself', async () => {
    const name = 'killed-run';
    const named = () => machinesNamed(name);
    const env = { ...process.env, SANDBAR_RUN_LEASE_SEC: '10' };
    const command = ['run', '--memory', '256', '--name', name, '--', 'sleep', '1000'];
    const child = spawn(process.execPath, [CLI, ...command], { env });
    await until('the machine runs', async () => (await named()).some(({ state }) => state === 'running'));
    child.kill('SIGKILL');
    const [machine] = await named();
    assert.ok(machine?.expires_at, 'it expires from the beginning');
    await until('the machine is gone', async () => (await named()).length === 0, 60_000);
    const { state } = await expectStatus<Machine>(200, 'GET', `/v1/machines/${machine.id}`);
    assert.equal(state, 'destroyed');
  });

  it('a run that lasts longer than the early expiry keeps its machine, and a kept one loses it', async () => {
    // The command lasts longer than two expiries.
    const args = ['run', '--rm=false', '--memory', '256', '--', 'sh', '-c', 'sleep 25; echo done'];
    const { code, stdout, stderr } = await sandbar(args, '', { SANDBAR_RUN_LEASE_SEC: '10' });
    assert.deepEqual([code, stdout], [0, 'done\n'], stderr);
    const [, id] = /machine (\S+) is kept/.exec(stderr) ?? [];
    const machine = await expectStatus<Machine>(200, 'GET', `/v1/machines/${id}`);
    assert.deepEqual([machine.state, machine.expires_at], ['running', null]);
    assert.equal((await sandbar(['machine', 'rm', machine.id])).code, 0);
  });

  it('names a machine and its jobs by name, and prints the output of a job again', async () => {
    const made = await sandbar(['machine', 'create', '--name', 'cli-names', '--memory', '256', '--json']);
    const { id }: Machine = JSON.parse(made.stdout);
    try {
      const script = 'echo out; echo err >&2; exit 3';
      const ran = await sandbar(['exec', '--name', 'build', 'cli-names', '--', 'sh', '-c', script]);
      assert.deepEqual(ran, { code: 3, stdout: 'out\n', stderr: 'err\n' });
      assert.deepEqual(await sandbar(['logs', '-f', 'cli-names', 'build']), ran);
      assert.deepEqual(await sandbar(['logs', id, 'build']), { ...ran, code: 0 });
      assert.match((await sandbar(['jobs', id.slice(0, 20)])).stdout, /build +exited +3 /);
      assert.equal((await sandbar(['exec', 'cli-no-such', '--', 'true'])).code, 5);
      const refused = await sandbar(['machine', 'create', '--memory', '1']);
      assert.equal(refused.code, 2);
      assert.match(refused.stderr, /^sandbar: validation_error: --memory must be /);
      assert.equal((await sandbar(['key', 'ls'])).code, 4);
    } finally {
      assert.equal((await sandbar(['machine', 'rm', 'cli-names'])).code, 0);
    }
  });
});
