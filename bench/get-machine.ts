// Compares GET /v1/machines/{id}, with authentication, to a minimal Fastify route that does one select by primary key.
// Both use the same PostgreSQL and get the same load in alternating runs.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/get-machine.ts
// Creates the database `sandbar_bench_get` on the server of the URL and drops it at the end.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import pg from 'pg';
import { percentile } from './statistics.ts';

const require = createRequire(new URL('../packages/control-plane/package.json', import.meta.url));
type Result = { requests: { average: number }; latency: { p99: number; p50: number }; non2xx: number; errors: number };
const autocannon: (options: object) => Promise<Result> = require('autocannon');

const DATABASE = 'sandbar_bench_get';
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5);
const SECONDS = Number(process.env.BENCH_SECONDS ?? 5);
const CONNECTIONS = 32;
const REFUSALS = 3000;
const serverUrl = process.env.SANDBAR_DATABASE_URL;
if (!serverUrl) throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to measure.');
const benchUrl = new URL(serverUrl);
benchUrl.pathname = `/${DATABASE}`;

type Ready = { url: string; foreignUrl?: string; absentUrl?: string; headers: Record<string, string> };
type Target = Ready & { child: ChildProcess };

async function start(which: 'bare' | 'sandbar'): Promise<Target> {
  const child = fork(new URL(`./get-machine/${which}.ts`, import.meta.url), {
    env: { ...process.env, SANDBAR_DATABASE_URL: benchUrl.href },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const [ready] = (await once(child, 'message')) as [Ready];
  return { child, ...ready };
}

async function load({ url, headers }: Target): Promise<Result> {
  const result = await autocannon({ url, headers, connections: CONNECTIONS, duration: SECONDS });
  if (result.non2xx > 0 || result.errors > 0)
    throw new Error(`${url}: ${result.non2xx} refused, ${result.errors} failed`);
  return result;
}

/**
 * Compares how long a 404 takes for the machine of another account and for a machine that does not exist. Equal times
 * mean that a client cannot find out by timing which ids exist.
 */
async function compareRefusals({ foreignUrl = '', absentUrl = '', headers }: Target): Promise<void> {
  const times = { foreign: [] as number[], absent: [] as number[] };
  for (let round = 0; round < REFUSALS; round++) {
    // Alternate the order, so that it favours neither.
    const order = round % 2 ? (['foreign', 'absent'] as const) : (['absent', 'foreign'] as const);
    for (const name of order) {
      const began = performance.now();
      const response = await fetch(name === 'foreign' ? foreignUrl : absentUrl, { headers });
      await response.text();
      times[name].push(performance.now() - began);
      if (response.status !== 404) throw new Error(`${name}: ${response.status}`);
    }
  }
  const [foreign, absent] = [percentile(times.foreign, 0.5), percentile(times.absent, 0.5)];
  console.log(
    `404 of a foreign id ${foreign.toFixed(3)} ms, of an absent one ${absent.toFixed(3)} ms (medians of ${REFUSALS}); ` +
      `ratio ${(foreign / absent).toFixed(3)}`,
  );
}

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(statement);
  await client.end();
}

await onServer(`drop database if exists ${DATABASE} with (force)`);
await onServer(`create database ${DATABASE}`);
const targets: Target[] = [];
try {
  const sandbar = await start('sandbar');
  targets.push(sandbar);
  const bare = await start('bare');
  targets.push(bare);
  const results: { ratio: number; p99: number; sandbar: number; bare: number }[] = [];
  for (const target of targets) await load(target);
  for (let round = 0; round < ROUNDS; round++) {
    const [theirs, ours] = [await load(bare), await load(sandbar)];
    results.push({
      ratio: ours.requests.average / theirs.requests.average,
      p99: ours.latency.p99,
      sandbar: ours.requests.average,
      bare: theirs.requests.average,
    });
  }
  const median = (pick: (result: (typeof results)[number]) => number) => percentile(results.map(pick), 0.5).toFixed(2);
  console.log(`bare ${median((r) => r.bare)} requests/s, sandbar ${median((r) => r.sandbar)} requests/s`);
  console.log(`ratio: median ${median((r) => r.ratio)} (${results.map((r) => r.ratio.toFixed(2)).join(', ')})`);
  console.log(
    `p99 at ${CONNECTIONS} connections, ms: median ${median((r) => r.p99)} (${results.map((r) => r.p99).join(', ')})`,
  );
  await compareRefusals(sandbar);
} finally {
  for (const { child } of targets) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  await onServer(`drop database if exists ${DATABASE} with (force)`);
}
