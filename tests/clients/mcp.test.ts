// Tests the MCP server with the official client and real machines, with all calls of a typical agent.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Client as McpClient } from '@modelcontextprotocol/client';
import type { NewAccount } from '@sandbar/contract/admin.ts';
import type { Exec } from '@sandbar/contract/exec.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { type HttpServer, serveHttp } from '@sandbar/mcp/http.ts';
import { postAdmin } from '@sandbar/service/admin-client.ts';
import { createAccount } from '../e2e/support/accounts.ts';
import { exchange, hostOf, visit } from '../e2e/support/ports.ts';
import { BASE_URL, expectStatus, HOME, until } from '../e2e/support/service.ts';
import { connectHttp, connectStdio, failure, use } from './support/mcp.ts';

const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };
/** A command that prints about 60 KB: numbered lines, each with a character of two bytes. */
const LONG_OUTPUT = 'i=0; while [ $i -lt 6000 ]; do echo "zeile-ß-$i"; i=$((i+1)); done';

type ExecResult = {
  exit_code: number;
  stdout: string;
  stderr: string;
  job_id: string;
  stdout_next_offset: number | null;
};
type OutputResult = { text: string; next_offset: number | null; status: string };

let http: HttpServer;
before(async () => {
  http = await serveHttp({ port: 0, baseUrl: BASE_URL });
});
after(() => http.close());

/** Other test files run at the same time. These tests list machines, so they need their own account. */
const account = await createAccount();
const openMachines = async () => (await account.call<{ machines: Machine[] }>('GET', '/v1/machines')).machines;

describe('an agent', () => {
  for (const [transport, connect] of [
    ['standard input and output', () => connectStdio('legacy')],
    ['HTTP with sessions', () => connectHttp(http.url, 'legacy')],
    ['HTTP with the newest protocol', () => connectHttp(http.url, 'auto')],
  ] as const) {
    it(`completes a whole task over ${transport}`, async (t) => {
      const agent = await connect();
      t.after(() => agent.close());
      const { machine_id } = await use<{ machine_id: string }>(agent, 'machine_create', {
        ...SMALL,
        expires_in_sec: 900,
      });
      const run = (command: string, more = {}) => use<ExecResult>(agent, 'exec', { machine_id, command, ...more });

      await use(agent, 'file_write', {
        machine_id,
        path: '/root/app/run.sh',
        content: '#!/bin/sh\necho "$1 $WHO" ; exit 3\n',
        mode: '0755',
      });
      const ran = await run('./run.sh hello; echo bad >&2; exit 3', { cwd: '/root/app', env: { WHO: 'agent' } });
      assert.deepEqual([ran.exit_code, ran.stdout, ran.stderr], [3, 'hello agent\n', 'bad\n']);

      await readsLongOutput(agent, machine_id);
      await readsFiles(agent, machine_id);
      await opensPort(agent, machine_id);

      const { snapshot_id } = await use<{ snapshot_id: string }>(agent, 'snapshot_create', {
        machine_id,
        name: 'good',
      });
      await run('rm -r /root/app && sync');
      const { snapshots } = await use<{ snapshots: object[] }>(agent, 'snapshot_list', { machine_id });
      assert.equal(snapshots.length, 1);
      await use(agent, 'snapshot_restore', { snapshot_id });
      assert.equal((await run('cat /root/app/run.sh | wc -l')).stdout.trim(), '2');

      assert.equal((await use(agent, 'machine_stop', { machine_id })).state, 'stopped');
      assert.match(await failure(agent, 'exec', { machine_id, command: 'true' }), /^Error conflict: .*machine_start/s);
      assert.equal((await use(agent, 'machine_start', { machine_id })).state, 'running');
      assert.match(await failure(agent, 'machine_delete', { machine_id }), /^Error conflict: /);
      await use(agent, 'machine_delete', { machine_id, delete_snapshots: true });
      await use(agent, 'machine_delete', { machine_id });
      assert.match(await failure(agent, 'exec', { machine_id, command: 'true' }), /^Error (not_found|conflict): /);
    });
  }
});

async function readsLongOutput(agent: McpClient, machine_id: string): Promise<void> {
  const cut = await use<ExecResult>(agent, 'exec', { machine_id, command: LONG_OUTPUT });
  assert.ok(Buffer.byteLength(cut.stdout) <= 20_000 && cut.stdout_next_offset !== null);
  let text = cut.stdout;
  for (let offset: number | null = cut.stdout_next_offset; offset !== null; ) {
    // With this number of bytes, the end of many parts falls inside a character.
    const args = { machine_id, job_id: cut.job_id, offset, max_bytes: 7001 };
    const part: OutputResult = await use<OutputResult>(agent, 'exec_output', args);
    assert.ok(!part.text.includes('\u{fffd}'));
    text += part.text;
    offset = part.next_offset;
  }
  assert.equal(text, Array.from({ length: 6000 }, (_, line) => `zeile-ß-${line}\n`).join(''));
}

async function readsFiles(agent: McpClient, machine_id: string): Promise<void> {
  const bytes = Buffer.from(Array.from({ length: 300 }, (_, at) => at % 256));
  const written = { machine_id, path: '/root/data.bin', content: bytes.toString('base64'), encoding: 'base64' };
  await use(agent, 'file_write', written);
  const read = await use(agent, 'file_read', { machine_id, path: '/root/data.bin', offset: 100 });
  assert.deepEqual(
    [read.encoding, read.size, read.content, read.next_offset],
    ['base64', 300, bytes.subarray(100).toString('base64'), null],
  );
  const hostname = await use(agent, 'file_read', { machine_id, path: '/proc/sys/kernel/ostype' });
  assert.deepEqual([hostname.content, hostname.size], ['Linux\n', null]);
  const { entries } = await use<{ entries: { path: string }[] }>(agent, 'file_list', { machine_id, path: '/root/app' });
  assert.deepEqual(
    entries.map(({ path }) => path),
    ['/root/app/run.sh'],
  );
  const missing = await failure(agent, 'file_read', { machine_id, path: '/root/none' });
  assert.match(missing, /^Error not_found: .*\nWhat to do: /s);
  const behind = await failure(agent, 'file_read', { machine_id, path: '/root/data.bin', offset: 300 });
  assert.match(behind, /^Error range_not_satisfiable: .*300 bytes/);
}

async function opensPort(agent: McpClient, machine_id: string): Promise<void> {
  const command = 'python3 -u -m http.server 8000';
  const job = await use<OutputResult & { job_id: string }>(agent, 'exec_start', {
    machine_id,
    command,
    cwd: '/root/app',
  });
  assert.equal(job.status, 'running');
  const { job_id } = job;
  const port = () =>
    use<{ is_listening: boolean; url: string; token: string }>(agent, 'port_url', { machine_id, port: 8000 });
  await until('the server listens', async () => (await port()).is_listening);
  const { url, token } = await port();
  const { search } = new URL(url);
  const head = `Host: ${hostOf(machine_id, 8000)}\r\nConnection: close\r\n`;
  const redirect = await exchange(`GET /run.sh${search} HTTP/1.1\r\n${head}\r\n`);
  const [, cookie = ''] = /^HTTP\/1\.1 302 .*\r\nset-cookie: ([^;]+)/is.exec(redirect) ?? [];
  const shown = await exchange(`GET /run.sh HTTP/1.1\r\n${head}Cookie: ${cookie}\r\n\r\n`);
  assert.match(shown, /^HTTP\/1\.1 200 .*echo "\$1 \$WHO"/s, redirect);
  const fetched = await visit(machine_id, 8000, { path: '/run.sh', headers: { 'x-sandbar-key': token } });
  assert.match(fetched.text, /echo "\$1 \$WHO"/);
  const log = await use<OutputResult>(agent, 'exec_output', { machine_id, job_id, stream: 'stderr', wait_sec: 20 });
  assert.match(log.text, /GET \/run\.sh/);
  assert.equal((await use(agent, 'exec_cancel', { machine_id, job_id })).status, 'canceled');
}

describe('machine_run', () => {
  it('runs a command and leaves no machine; with keep the machine stays', async (t) => {
    const agent = await connectStdio('auto', account.api_key);
    t.after(() => agent.close());
    const args = { command: 'cat; uname', stdin: 'in\n', memory_mb: 256 };
    const ran = await use(agent, 'machine_run', args);
    assert.deepEqual([ran.exit_code, ran.stdout, ran.machine_kept], [0, 'in\nLinux\n', false]);
    assert.deepEqual(await openMachines(), []);
    const kept = await use(agent, 'machine_run', { ...args, keep: true });
    const { machine_id } = kept;
    const again = await use(agent, 'exec', { machine_id, command: 'echo again' });
    assert.equal(again.stdout, 'again\n');
    assert.notEqual((await use(agent, 'machine_get', { machine_id })).expires_at, null);
    await use(agent, 'machine_delete', { machine_id });
  });

  it('leaves no machine when the client disconnects', async () => {
    const agent = await connectStdio('legacy', account.api_key);
    const call = agent.callTool({ name: 'machine_run', arguments: { command: 'sleep 600', memory_mb: 256 } });
    const gone = assert.rejects(call);
    await until('the machine runs', async () => (await openMachines()).some(({ state }) => state === 'running'));
    await agent.close();
    await gone;
    await until('the machine is gone', async () => (await openMachines()).length === 0);
  });
});

describe('exec', () => {
  let machine_id: string;
  let agent: McpClient;
  before(async () => {
    agent = await connectHttp(http.url, 'auto');
    ({ machine_id } = await use<{ machine_id: string }>(agent, 'machine_create', { ...SMALL, expires_in_sec: 900 }));
  });
  after(async () => {
    await use(agent, 'machine_delete', { machine_id });
    await agent.close();
  });

  for (const [transport, connect] of [
    ['standard input and output', () => connectStdio('legacy')],
    ['HTTP with sessions', () => connectHttp(http.url, 'legacy')],
    ['HTTP with the newest protocol', () => connectHttp(http.url, 'auto')],
  ] as const) {
    it(`kills the command when its call is cancelled, over ${transport}`, async (t) => {
      const other = await connect();
      t.after(() => other.close());
      const jobs = async () =>
        (await expectStatus<{ execs: Exec[] }>(200, 'GET', `/v1/machines/${machine_id}/execs`)).execs;
      const known = new Set((await jobs()).map(({ id }) => id));
      const abort = new AbortController();
      const args = { machine_id, command: 'sleep 600' };
      const call = assert.rejects(other.callTool({ name: 'exec', arguments: args }, { signal: abort.signal }));
      const job = async () => (await jobs()).find(({ id }) => !known.has(id));
      await until('the job runs', async () => (await job())?.status === 'running');
      abort.abort();
      await call;
      await until('the job has ended', async () => (await job())?.status !== 'running');
      assert.equal((await job())?.status, 'canceled');
    });
  }

  it('reports progress while the command runs, then the time-out', async () => {
    const heard: string[] = [];
    const result = await agent.callTool(
      { name: 'exec', arguments: { machine_id, command: 'echo begun; sleep 600', timeout_sec: 7 } },
      { onprogress: ({ message }) => heard.push(message ?? '') },
    );
    const { exit_code, timed_out, stdout } = result.structuredContent as ExecResult & { timed_out: boolean };
    assert.deepEqual([exit_code, timed_out, stdout], [124, true, 'begun\n']);
    assert.match(heard[0] ?? '', /^running for \d+ s, 6 bytes of stdout/);
  });

  it('names bad arguments', async () => {
    assert.match(
      await failure(agent, 'exec', { machine_id, command: '', extra: 1 }),
      /command: .*Unrecognized key: "extra"/,
    );
    assert.match(await failure(agent, 'machine_create', { stack: 'no-such' }), /^Error \w+: .*stack/);
  });

  it('hides the machines of one account from another, and refuses a wrong key', async () => {
    const { body } = await postAdmin(homePaths(HOME).adminSocket, '/admin/accounts', { email: 'mcp@example.test' });
    const { api_key } = body as NewAccount;
    for (const connect of [() => connectStdio('legacy', api_key), () => connectHttp(http.url, 'auto', api_key)]) {
      const stranger = await connect();
      assert.deepEqual(await use(stranger, 'machine_list', {}), { machines: [], total: 0 });
      assert.match(await failure(stranger, 'exec', { machine_id, command: 'id' }), /^Error not_found: /);
      await stranger.close();
    }
    const wrong = await connectStdio('legacy', 'sbr_wrong');
    assert.match(
      await failure(wrong, 'machine_list', {}),
      /^Error unauthenticated: .*\nWhat to do: .*SANDBAR_API_KEY/s,
    );
    await wrong.close();
    await assert.rejects(connectHttp(http.url, 'legacy', 'sbr_wrong'), /401|key is wrong/);
  });
});
