// Measures the time that the control plane alone adds to requests. It uses a fake host that answers at once, a real
// PostgreSQL, and one client that sends one request after the other. Prints the median and 95th percentile of each kind
// of request, and how many statements, commits and log syncs each request needs in the database.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/control-plane.ts
// Creates the database `sandbar_bench_control` on the server of the URL and drops it at the end. Optional variables:
// BENCH_ROUNDS (requests of each kind, default 300), BENCH_ONLY (measures only kinds whose name contains this text),
// BENCH_STATEMENTS=1 (prints the statements of one request as well).
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@sandbar/sdk/client.ts';
import { FakeHost } from '../packages/control-plane/tests/support/fake-host.ts';
import { percentile } from './statistics.ts';

const require = createRequire(new URL('../packages/control-plane/package.json', import.meta.url));
const pg: typeof import('pg') = require('pg');

const DATABASE = 'sandbar_bench_control';
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 300);
const WARM_UP = 40;
const serverUrl = process.env.SANDBAR_DATABASE_URL;
if (!serverUrl) throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to measure.');
const benchUrl = new URL(serverUrl);
benchUrl.pathname = `/${DATABASE}`;

type Counts = { statements: number; commits: number; syncs: number; cpuMs: number; texts: string[] };

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(statement);
  await client.end();
}

async function counts(child: ChildProcess): Promise<Counts> {
  child.send('report');
  const [said] = (await once(child, 'message')) as [Counts];
  return said;
}

/**
 * Measures one kind of request and prints the result. Only the time of `work` counts. `prepare` makes the argument of
 * `work` before that.
 */
async function bench<T>(
  child: ChildProcess,
  what: string,
  prepare: () => Promise<T>,
  work: (given: T) => Promise<unknown>,
): Promise<void> {
  if (!what.includes(process.env.BENCH_ONLY ?? '')) return;
  for (let round = 0; round < WARM_UP; round++) await work(await prepare());
  const given: T[] = [];
  for (let round = 0; round < ROUNDS; round++) given.push(await prepare());
  const before = await counts(child);
  const times: number[] = [];
  for (const item of given) {
    const began = performance.now();
    await work(item);
    times.push(performance.now() - began);
  }
  const after = await counts(child);
  const per = (value: number) => (value / ROUNDS).toFixed(2);
  console.log(
    `${what.padEnd(34)} median ${percentile(times, 0.5).toFixed(2)} ms, p95 ${percentile(times, 0.95).toFixed(2)} ms, ` +
      `processor of the control plane ${per(after.cpuMs - before.cpuMs)} ms; ` +
      `statements ${per(after.statements)}, commits ${per(after.commits)}, syncs of the log ${per(after.syncs)}`,
  );
  if (!process.env.BENCH_STATEMENTS) return;
  for (const text of after.texts.slice(0, Math.ceil(after.statements / ROUNDS)))
    console.log(`    ${text.replaceAll(/\s+/g, ' ').trim().slice(0, 150)}`);
}

const home = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
const socket = join(home, 'host.sock');
// The host needs memory for all machines of the run, because the benchmark destroys none.
const host = new FakeHost(socket, {
  ...{ subnet: '10.0.0.0/8', isolation: 'kvm', memory_mb: 2 ** 30, cpus: 2 ** 20 },
  disk: { total_mb: 2 ** 30, free_mb: 2 ** 30, reserve_mb: 2 ** 11 },
});
await host.listen();
await onServer(`drop database if exists ${DATABASE} with (force)`);
await onServer(`create database ${DATABASE}`);
const child = fork(new URL('./control-plane/sandbar.ts', import.meta.url), {
  env: { ...process.env, SANDBAR_DATABASE_URL: benchUrl.href, BENCH_HOST_SOCKET: socket },
  stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
});
try {
  const [ready] = (await once(child, 'message')) as [{ baseUrl: string; apiKey: string }];
  const sandbar = new Client(ready);
  const { id } = await sandbar.machines.create({});
  const nothing = async () => undefined;
  await bench(child, 'GET machine', nothing, () => sandbar.machines.get(id));
  await bench(child, 'POST machine', nothing, () => sandbar.machines.create({}));
  let number = 0;
  await bench(child, 'POST machine with a key', nothing, () =>
    sandbar.machines.create({}, { idempotencyKey: `bench-${number++}` }),
  );
  const start = async () => (await sandbar.execs.start(id, { command: 'true' })).id;
  await bench(child, 'POST exec that ends at once', nothing, start);
  await bench(child, 'POST exec, then GET until ended', nothing, async () => sandbar.execs.wait(id, await start()));
  await bench(child, 'GET exec that ended', start, (exec) => sandbar.execs.wait(id, exec));
  await bench(child, 'GET output', start, (exec) => sandbar.execs.output(id, exec, { wait_ms: 1000 }));
  await bench(child, 'create, exec, output', nothing, async () => {
    const machine = await sandbar.machines.create({});
    const exec = await sandbar.execs.start(machine.id, { command: 'print hello' });
    await sandbar.execs.output(machine.id, exec.id, { wait_ms: 1000 });
  });
} finally {
  child.kill('SIGTERM');
  await once(child, 'exit');
  await host.away();
  await onServer(`drop database if exists ${DATABASE} with (force)`);
  rmSync(home, { recursive: true, force: true });
}
