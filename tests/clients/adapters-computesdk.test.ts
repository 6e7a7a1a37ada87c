// Tests the provider for ComputeSDK with real machines, through the API of ComputeSDK itself.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { sandbar } from '@sandbar/computesdk';
import { Client, NotFoundError, ValidationError } from '@sandbar/sdk';
import { compute, type SandboxInterface } from 'computesdk';
import { API_KEY, BASE_URL, until } from '../e2e/support/service.ts';
import { openUrl, textAt } from './support/open-url.ts';
import { runReadme } from './support/readme.ts';

const client = new Client({ baseUrl: BASE_URL, apiKey: API_KEY });
const provider = sandbar({ client, memoryMb: 256, rootfsSizeGb: 2 });
const sdk = compute({ provider });

describe('the provider of ComputeSDK', () => {
  const name = `computesdk-${randomUUID()}`;
  const example = runReadme('packages/adapters/computesdk/README.md');
  let sandbox: SandboxInterface;
  before(async () => {
    sandbox = await sdk.sandbox.create({
      name,
      envs: { GREETING: 'hello' },
      metadata: { job: 'test' },
      timeout: 900_000,
    });
  });
  after(() => sandbox.destroy());

  it('creates a machine with the requested options and an expiry', async () => {
    const { id, provider, status, timeout, metadata, createdAt } = await sandbox.getInfo();
    assert.deepEqual([id, provider, status, metadata], [sandbox.sandboxId, 'sandbar', 'running', { job: 'test' }]);
    assert(createdAt instanceof Date);
    assert(Math.abs(timeout - 900_000) < 60_000, String(timeout));
    const machine = await client.machines.get(id);
    assert.deepEqual([machine.name, machine.memory_mb, machine.rootfs_size_gb], [name, 256, 2]);
  });

  it('runs commands with exact exit codes and a time limit', async () => {
    const options = { cwd: '/etc', env: { NAME: 'you' } };
    const result = await sandbox.runCommand('echo "$GREETING $NAME"; pwd >&2; exit 3', options);
    assert.deepEqual([result.exitCode, result.stdout, result.stderr], [3, 'hello you\n', '/etc\n']);
    assert.equal((await sandbox.runCommand('kill -9 $$')).exitCode, 137);
    assert.equal((await sandbox.runCommand('nothing-like-this')).exitCode, 127);
    assert.equal((await sandbox.runCommand('sleep 60', { timeout: 900 })).exitCode, 124);
    await assert.rejects(sandbox.runCommand('true', { cwd: '/nowhere' }), ValidationError);
  });

  it('passes output to the callback while the command runs, in whole characters', async () => {
    let stdout = '';
    let stderr = '';
    const result = await sandbox.runCommand(
      // The command waits until the callback has got its first output. Then it prints the euro sign in two pieces.
      `echo ready; until [ -e /tmp/go ]; do sleep 0.05; done; printf '\\342\\202'; sleep 0.3; printf '\\254'; echo no >&2; exit 5`,
      {
        onStdout: (text) => {
          if (stdout === '') void sandbox.filesystem.writeFile('/tmp/go', '');
          stdout += text;
        },
        onStderr: (text) => {
          stderr += text;
        },
      },
    );
    assert.deepEqual([stdout, stderr, result.exitCode], ['ready\n€', 'no\n', 5]);
    assert.deepEqual([result.stdout, result.stderr], [stdout, stderr]);
  });

  it('kills a streamed command whose callback throws', async () => {
    const failure = new Error('enough');
    const onStdout = () => {
      throw failure;
    };
    await assert.rejects(sandbox.runCommand('echo; exec sleep 98765', { onStdout }), failure);
    assert.equal((await sandbox.runCommand('pgrep -xf "sleep 98765"')).exitCode, 1);
  });

  it('starts a server in the background and gives its address', async () => {
    await sandbox.filesystem.mkdir('/srv/web');
    await sandbox.filesystem.writeFile('/srv/web/index.html', 'from the machine');
    const started = await sandbox.runCommand('exec python3 -m http.server 8000', { cwd: '/srv/web', background: true });
    assert.equal(started.exitCode, 0);
    const open = sandbar({ client, publicPorts: true });
    const again = await open.sandbox.getById(sandbox.sandboxId);
    // The first address has a token and is for a browser, which gets a cookie. Later, `publicPorts` makes the port public.
    const { status, cookies } = await openUrl(await sandbox.getUrl({ port: 8000 }));
    assert.deepEqual([status, cookies.length], [302, 1]);
    assert.match(await sandbox.getUrl({ port: 8000, protocol: 'ws' }), /^ws:.*sandbar_token=/);
    const address = (await again?.getUrl({ port: 8000 })) ?? '';
    assert.equal(await textAt(address), 'from the machine');
  });

  it('reads and changes files', async () => {
    const { filesystem } = sandbox;
    const folder = '/root/a folder';
    await filesystem.writeFile(`${folder}/text.txt`, 'ä € 🙂\n');
    await filesystem.mkdir(`${folder}/below/deeper`);
    await sandbox.runCommand('ln -s below link; ln -s text.txt short', { cwd: folder });
    assert.equal(await filesystem.readFile(`${folder}/text.txt`), 'ä € 🙂\n');
    const entries = await filesystem.readdir(folder);
    assert.deepEqual(
      entries.map((entry) => [entry.name, entry.type]),
      [
        ['below', 'directory'],
        ['link', 'directory'],
        ['short', 'file'],
        ['text.txt', 'file'],
      ],
    );
    assert.deepEqual([await filesystem.exists(folder), await filesystem.exists('/nowhere')], [true, false]);
    await filesystem.remove(folder);
    await filesystem.remove(folder);
    assert.equal(await filesystem.exists(folder), false);
    await assert.rejects(filesystem.readFile('/nowhere'), NotFoundError);
  });

  it('takes, lists and deletes snapshots', async () => {
    const { id, provider, createdAt } = await sdk.snapshot.create(sandbox.sandboxId, { name: 'before' });
    assert(createdAt instanceof Date);
    assert.equal(provider, 'sandbar');
    const listed = (await sdk.snapshot.list()).find((snapshot) => snapshot.id === id);
    assert.equal(listed?.metadata?.name, 'before');
    await sdk.snapshot.delete(id);
    assert(!(await sdk.snapshot.list()).some((snapshot) => snapshot.id === id));
  });

  it('passes on the errors of the service', async () => {
    await assert.rejects(provider.sandbox.create({ vcpus: 288 }), ValidationError);
    // `compute` merges the errors of all its providers into one error, which has only their texts.
    await assert.rejects(sdk.sandbox.create({ vcpus: 288 }), /sandbar: validation_error: vcpus must be at most/);
  });

  it('leaves no machine behind when a create is aborted', async () => {
    const gone = `aborted-${randomUUID()}`;
    const abort = new AbortController();
    const created = sdk.sandbox.create({ name: gone, signal: abort.signal });
    // The request is already under way, so the service creates the machine in spite of the abort.
    abort.abort();
    await assert.rejects(created, { name: 'AbortError' });
    const isDestroyed = async () => (await client.machines.list({ name: gone, state: 'destroyed' })).length === 1;
    await until('the machine is destroyed', isDestroyed);
  });

  it('finds machines, and destroys them', async () => {
    const short = await sdk.sandbox.create();
    const { expires_at, created_at } = await client.machines.get(short.sandboxId);
    assert.equal(Math.round((Date.parse(expires_at ?? '') - Date.parse(created_at)) / 60_000), 30);
    assert((await sdk.sandbox.list()).some(({ sandboxId }) => sandboxId === short.sandboxId));
    const found = await sdk.sandbox.getById(short.sandboxId);
    assert.equal((await found?.runCommand('echo found'))?.stdout, 'found\n');
    await short.destroy();
    await short.destroy();
    assert.equal((await client.machines.get(short.sandboxId)).state, 'destroyed');
    assert.equal(await provider.sandbox.getById(short.sandboxId), null);
  });

  it('has a README whose example runs', async () => {
    await example;
  });
});
