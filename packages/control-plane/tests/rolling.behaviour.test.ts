// Tests a rolling restart: two replicas as processes behind a load balancer are restarted one after the other, while
// the SDK does everything that clients do. No request is lost, and no terminal is away for longer than a reconnect.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { request as openRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, it } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { callAdmin } from './support/admin.ts';
import { Balancer } from './support/balancer.ts';
import { FakeHost } from './support/fake-host.ts';
import { FakeTerminals } from './support/fake-terminals.ts';
import { freePorts } from './support/free-ports.ts';
import { guestEntry } from './support/guest-files.ts';
import { playStream } from './support/guest-stream.ts';
import { answerOf, textOf } from './support/port-client.ts';
import { createDatabase, endSharedPostgres, until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { ReplicaProcess } from './support/replica-process.ts';

const databaseUrl = await createDatabase();
const root = mkdtempSync(join(tmpdir(), 'sandbar-rolling-'));
const homes = ['one', 'two'].map((name) => join(root, name));
const host = new FakeHost(join(root, 'host.sock'), { subnet: '10.83.0.0/16' });
await host.listen();
for (const home of homes) {
  mkdirSync(homePaths(home).run, { recursive: true });
  symlinkSync(join(root, 'host.sock'), homePaths(home).hostAgentSocket);
}
const ports = await freePorts(4);
const backends = [0, 2].map((at) => ({ port: ports[at] ?? 0, metricsPort: ports[at + 1] ?? 0 }));
const replicas = backends.map(
  (backend, index) =>
    new ReplicaProcess(backend, {
      SANDBAR_HOME: homes[index] ?? '',
      SANDBAR_DATABASE_URL: databaseUrl,
      SANDBAR_ALLOW_EMULATED_TENANTS: '1',
      SANDBAR_VCPU_OVERCOMMIT: '1000',
      SANDBAR_RATE_MUTATING: '10000/10000',
      SANDBAR_RATE_EXEC: '10000/10000',
      SANDBAR_DRAIN_SEC: '1',
    }),
);
const balancer = new Balancer(backends);
after(async () => {
  balancer.close();
  for (const replica of replicas) replica.kill();
  await host.away();
  await endSharedPostgres();
  rmSync(root, { recursive: true, force: true });
});
await Promise.all(replicas.map((replica) => replica.start()));
const allReady = () => until(async () => (await balancer.check()).length === 2, 'both replicas are ready', 60_000);
await allReady();
const balancerPort = await balancer.listen();

/** Connections that broke before the answer to a request. The client would hide some of them by sending it again. */
const broken: unknown[] = [];
const plainFetch = globalThis.fetch;
globalThis.fetch = (...args: Parameters<typeof fetch>) =>
  plainFetch(...args).catch((error: Error) => {
    if (!args[0].toString().includes('/readyz')) broken.push(error.cause ?? error);
    throw error;
  });

const account = await callAdmin(homePaths(homes[0] ?? '').adminSocket, '/admin/accounts', {
  ...{ email: 'load@example.test', tier: 'enterprise', billing_mode: 'unmetered' },
});
const apiKey = String(account.json.api_key);
const client = new Client({ baseUrl: `http://127.0.0.1:${balancerPort}`, apiKey, retryForSec: 10 });

host.guestStreams['files.write'] = () => {
  const stream = playStream({});
  let size = 0;
  stream.guest.on('data', (chunk: Buffer) => {
    size += chunk.length;
  });
  stream.guest.once('end', () => stream.finish({ entry: guestEntry({ size }) }));
  return stream;
};
const terminals = new FakeTerminals(host);
const programs = new Programs(host);

it('a rolling restart of two replicas loses no request, no output and no terminal', { timeout: 240_000 }, async () => {
  const machine = (await client.machines.create({ memory_mb: 128 })).id;
  await programs.serve(machine, 8000, (_request, response) => response.end('here'));
  let isOver = false;
  const done: Record<string, number> = {};
  /** Repeats `work` until the restarts are over. A lost request throws, which fails the test. */
  const repeat = async (name: string, work: (round: number) => Promise<void>) => {
    for (let round = 0; !isOver; round++) {
      await work(round);
      done[name] = round + 1;
    }
  };

  const job = await client.execs.start(machine, { command: 'sleep' });
  let printed = '';
  const streaming = (async () => {
    let text = '';
    for await (const bytes of client.execs.streamOutput(machine, job.id, 'stdout'))
      text += Buffer.from(bytes).toString();
    return text;
  })();

  let reconnects = 0;
  const gaps: number[] = [];
  const terminal = await client.terminals.open(machine, {
    onReconnect: () => reconnects++,
    onGap: (bytes) => gaps.push(bytes),
  });
  let shown = '';
  const showing = (async () => {
    for await (const bytes of terminal) shown += Buffer.from(bytes).toString();
  })();

  const content = new Uint8Array(256 * 1024);
  const load = [
    repeat('create', async () => {
      const made = await client.machines.create({ memory_mb: 128 });
      await client.machines.destroy(made.id);
    }),
    repeat('run', async (round) => {
      const { stdout } = await client.execs.run(machine, { command: `print ${round}` });
      assert.equal(Buffer.from(stdout).toString(), String(round));
    }),
    repeat('wait', async () => {
      const { id } = await client.execs.start(machine, { command: 'sleep' });
      const waiting = client.execs.wait(machine, id);
      await pause(20);
      host.endJob(machine, id);
      assert.equal((await waiting).exit_code, 0);
    }),
    repeat('upload', async () => {
      assert.equal((await client.files(machine).write('/root/hello.txt', content)).size, content.length);
    }),
    repeat('port', async () => {
      const headers = { host: `8000-${machine}.localhost`, 'x-sandbar-key': apiKey };
      const request = openRequest({ host: '127.0.0.1', port: balancerPort, agent: false, headers });
      request.end();
      const response = await answerOf(request);
      assert.deepEqual([response.statusCode, await textOf(response)], [200, 'here']);
    }),
    repeat('print', async (round) => {
      const text = `line ${round}\n`;
      printed += text;
      host.append(machine, job.id, Buffer.from(text));
      await terminals.all.get(terminal.id)?.print(text);
      await pause(5);
    }),
  ];

  const restarting = (async () => {
    try {
      for (const replica of replicas) {
        assert.equal(await replica.stop(), 0, replica.output);
        await replica.start();
        await allReady();
      }
    } finally {
      isOver = true;
    }
  })();
  await Promise.all([restarting, ...load]);
  host.endJob(machine, job.id);
  assert.equal(await streaming, printed);
  await until(() => shown === printed, 'the terminal has shown everything');
  terminals.all.get(terminal.id)?.exit({ exit_code: 0 });
  await showing;
  assert.deepEqual(broken, [], 'no connection broke before its answer');
  assert.equal(balancer.unserved, 0);
  assert.deepEqual(gaps, []);
  assert(reconnects > 0, 'the terminal was on a replica that was restarted');
  for (const [name, rounds] of Object.entries(done)) assert(rounds > 3, `${name}: ${rounds}`);
});
