// Compares the control planes of two checkouts, such as two revisions. Each request goes first to one and then to the
// other, so other load on the computer affects both alike. Fake hosts answer at once, PostgreSQL is real. Prints the
// medians, their ratio, and what a request costs: CPU time of the control plane and database statements.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/compare-control-planes.ts OLD_CHECKOUT NEW_CHECKOUT
// Both checkouts need their node modules. BENCH_ROUNDS: requests of each kind, default 300. Creates the databases
// `sandbar_compare_0` and `sandbar_compare_1` on the server of the URL and drops them at the end.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { FakeHost } from '../packages/control-plane/tests/support/fake-host.ts';
import { percentile } from './statistics.ts';

const require = createRequire(new URL('../packages/control-plane/package.json', import.meta.url));
const pg: typeof import('pg') = require('pg');
const { Pool }: typeof import('undici') = require('undici');

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 300);
const WARM_UP = 60;
const serverUrl = process.env.SANDBAR_DATABASE_URL;
const checkouts = process.argv.slice(2);
if (!serverUrl) throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to measure with.');
if (checkouts.length !== 2) throw new Error('Name two checkouts: the old one and the new one.');

type Counts = { statements: number; cpuMs: number };
type Call = (method: 'GET' | 'POST', path: string, body?: object, key?: string) => Promise<{ id: string }>;
type Side = { call: Call; counts: () => Promise<Counts>; machineId: string; end: () => Promise<void> };

async function onServer(...statements: string[]): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}

async function startSide(checkout: string, index: number): Promise<Side> {
  const database = `sandbar_compare_${index}`;
  await onServer(`drop database if exists ${database} with (force)`, `create database ${database}`);
  const url = new URL(serverUrl ?? '');
  url.pathname = `/${database}`;
  const home = mkdtempSync(join(tmpdir(), 'sandbar-compare-'));
  const socket = join(home, 'host.sock');
  const module: { FakeHost: typeof FakeHost } = await import(
    join(checkout, 'packages/control-plane/tests/support/fake-host.ts')
  );
  const host = new module.FakeHost(socket, {
    ...{ subnet: '10.0.0.0/8', isolation: 'kvm', memory_mb: 2 ** 30, cpus: 2 ** 20 },
    disk: { total_mb: 2 ** 30, free_mb: 2 ** 30, reserve_mb: 2 ** 11 },
  });
  await host.listen();
  const child: ChildProcess = fork(join(checkout, 'bench/control-plane/sandbar.ts'), {
    execPath: join(checkout, 'node_modules/node/bin/node'),
    env: { ...process.env, SANDBAR_DATABASE_URL: url.href, BENCH_HOST_SOCKET: socket },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const [ready] = (await once(child, 'message')) as [{ baseUrl: string; apiKey: string }];
  const pool = new Pool(ready.baseUrl, { connections: 1 });
  const call: Call = async (method, path, body, key) => {
    const headers = {
      authorization: `Bearer ${ready.apiKey}`,
      ...(body ? { 'content-type': 'application/json' } : {}),
      ...(key === undefined ? {} : { 'idempotency-key': key }),
    };
    const answer = await pool.request({ method, path, headers, body: body ? JSON.stringify(body) : null });
    const text = await answer.body.text();
    if (answer.statusCode >= 300) throw new Error(`${method} ${path} answered ${answer.statusCode}: ${text}`);
    return JSON.parse(text);
  };
  return {
    call,
    machineId: (await call('POST', '/v1/machines', {})).id,
    counts: async () => {
      child.send('report');
      return ((await once(child, 'message')) as [Counts])[0];
    },
    end: async () => {
      await pool.close();
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
      await host.away();
      rmSync(home, { recursive: true, force: true });
      await onServer(`drop database if exists ${database} with (force)`);
    },
  };
}

let keys = 0;
const ACTS: [name: string, act: (side: Side) => Promise<unknown>][] = [
  ['GET machine', ({ call, machineId }) => call('GET', `/v1/machines/${machineId}`)],
  ['POST machine', ({ call }) => call('POST', '/v1/machines', {})],
  ['POST machine with a key', ({ call }) => call('POST', '/v1/machines', {}, `compare-${keys++}`)],
  ['POST exec', ({ call, machineId }) => call('POST', `/v1/machines/${machineId}/execs`, { command: 'true' })],
  [
    'POST exec, GET until ended',
    async ({ call, machineId }) => {
      const { id } = await call('POST', `/v1/machines/${machineId}/execs`, { command: 'true' });
      return call('GET', `/v1/machines/${machineId}/execs/${id}?wait_ms=1000`);
    },
  ],
];

const sides = [
  await startSide(resolve(checkouts[0] ?? ''), 0),
  await startSide(resolve(checkouts[1] ?? ''), 1),
] as const;
try {
  for (const [name, act] of ACTS) {
    for (let round = 0; round < WARM_UP; round++) for (const side of sides) await act(side);
    const before = [await sides[0].counts(), await sides[1].counts()] as const;
    const times: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      for (const index of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
        const began = performance.now();
        await act(sides[index]);
        times[index].push(performance.now() - began);
      }
    }
    const after = [await sides[0].counts(), await sides[1].counts()] as const;
    const [old, now] = [percentile(times[0], 0.5), percentile(times[1], 0.5)];
    const cpu = ([0, 1] as const).map((index) => ((after[index].cpuMs - before[index].cpuMs) / ROUNDS).toFixed(2));
    const statements = ([0, 1] as const).map((index) => (after[index].statements / ROUNDS).toFixed(1));
    console.log(
      `${name.padEnd(28)} median ${old.toFixed(2)} and ${now.toFixed(2)} ms, ratio ${(now / old).toFixed(2)}; ` +
        `processor ${cpu.join(' and ')} ms; statements ${statements.join(' and ')}`,
    );
  }
} finally {
  for (const side of sides) await side.end();
}
process.exit(0);
