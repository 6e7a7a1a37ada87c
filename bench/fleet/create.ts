// Measures creates of two replicas on one PostgreSQL with 1,000 hosts that answer at once: requests arrive at a steady
// rate, at both replicas and from many accounts. Replicas, PostgreSQL and this process share the processors.
//
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/fleet/create.ts --rate 300 --seconds 20
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import { insertKey } from '@sandbar/control-plane/api-keys/store.ts';
import { asOwner } from '@sandbar/control-plane/db/database.ts';
import { migrate } from '@sandbar/control-plane/db/migrate.ts';
import { registerHost } from '@sandbar/control-plane/hosts/store.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';
import { percentile } from '../statistics.ts';
import { hostIds, infoOf } from './fake-hosts.ts';

const { values } = parseArgs({
  options: {
    rate: { type: 'string', default: '300' },
    seconds: { type: 'string', default: '20' },
    hosts: { type: 'string', default: '1000' },
    accounts: { type: 'string', default: '100' },
    replicas: { type: 'string', default: '2' },
    /** Creates without a pause between them, this many at a time, in place of a rate. */
    parallel: { type: 'string' },
  },
});
const [rate, seconds, hosts] = [Number(values.rate), Number(values.seconds), Number(values.hosts)];
const WARM_UP_SEC = 5;
const DATABASE = 'sandbar_bench_fleet';
const serverUrl = process.env.SANDBAR_DATABASE_URL ?? '';
const url = new URL(serverUrl);
url.pathname = `/${DATABASE}`;
const log = createLog('silent');
const onServer = (statement: string) => asOwner(serverUrl, log, (db) => sql.raw(statement).execute(db));

async function prepare(): Promise<string[]> {
  await onServer(`drop database if exists ${DATABASE} with (force)`);
  await onServer(`create database ${DATABASE}`);
  return asOwner(url.href, log, async (db) => {
    await migrate(db);
    for (const id of hostIds(hosts)) await registerHost(db, infoOf(id));
    const keys: string[] = [];
    for (let index = 0; index < Number(values.accounts); index++) {
      const id = await insertAccount(db, { email: `bench-${index}@example.test`, tier: 'enterprise' });
      keys.push(await insertKey(db, id, 'full', 'bench'));
    }
    const most = 1_000_000_000;
    await sql`update accounts set limit_machines = ${most}, limit_vcpus = ${most}, limit_memory_mb = ${most},
      limit_storage_gb = ${most}`.execute(db);
    return keys;
  });
}

const agent = new Agent({ keepAlive: true, maxSockets: 512 });
const statuses = new Map<number, number>();

async function create(port: number, key: string): Promise<number> {
  const began = performance.now();
  const sent = request({
    ...{ agent, port, host: '127.0.0.1', method: 'POST', path: '/v1/machines' },
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-length': 2 },
  });
  sent.end('{}');
  const [response] = await once(sent, 'response');
  response.resume();
  await once(response, 'end');
  statuses.set(response.statusCode, (statuses.get(response.statusCode) ?? 0) + 1);
  return performance.now() - began;
}

/** Sends creates for `sec` seconds and returns their times in milliseconds, from when they were due. */
async function run(sec: number, ports: readonly number[], keys: readonly string[]): Promise<number[]> {
  const times: number[] = [];
  const pick = <T>(list: readonly T[], index: number) => list[index % list.length] as T;
  const until = performance.now() + sec * 1000;
  const one = async (index: number) => {
    times.push(await create(pick(ports, index), pick(keys, Math.floor(Math.random() * keys.length))));
  };
  if (values.parallel !== undefined) {
    let index = 0;
    const worker = async () => {
      while (performance.now() < until) await one(index++);
    };
    await Promise.all(Array.from({ length: Number(values.parallel) }, worker));
    return times;
  }
  const began = performance.now();
  const open: Promise<void>[] = [];
  for (let index = 0; index < rate * sec; index++) {
    const waitMs = began + (index * 1000) / rate - performance.now();
    // A timer is not exact, so several requests may be due at once.
    if (waitMs > 0) await delay(waitMs);
    open.push(one(index));
  }
  await Promise.all(open);
  return times;
}

const keys = await prepare();
const children: ChildProcess[] = Array.from({ length: Number(values.replicas) }, () =>
  fork(new URL('./replica.ts', import.meta.url), {
    env: {
      ...{ ...process.env, SANDBAR_DATABASE_URL: url.href, BENCH_HOSTS: values.hosts },
      BENCH_SECRET: 'a secret of the benchmark that is long enough',
    },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  }),
);
const tell = async (child: ChildProcess) => {
  child.send('report');
  return ((await once(child, 'message')) as [{ cpuMs: number; memoryMb: number }])[0];
};
try {
  const ports = await Promise.all(
    children.map(async (child) => ((await once(child, 'message')) as [{ port: number }])[0].port),
  );
  await run(WARM_UP_SEC, ports, keys);
  await Promise.all(children.map(tell));
  statuses.clear();
  const own = process.cpuUsage();
  const began = performance.now();
  const times = await run(seconds, ports, keys);
  const tookSec = (performance.now() - began) / 1000;
  const reports = await Promise.all(children.map(tell));
  const { user, system } = process.cpuUsage(own);
  const [worst] = await asOwner(url.href, log, async (db) => {
    const { rows } = await sql<{ most: number; hosts: number }>`
      select max(machines) as most, count(*) as hosts
      from (select count(*) as machines from machines group by host_id) as counts`.execute(db);
    return rows;
  });
  const share = (ms: number) => `${((ms / 1000 / tookSec) * 100).toFixed(0)} %`;
  console.log(
    `${(times.length / tookSec).toFixed(0)} creates a second for ${tookSec.toFixed(0)} s; ` +
      `p50 ${percentile(times, 0.5).toFixed(1)}, p95 ${percentile(times, 0.95).toFixed(1)}, ` +
      `p99 ${percentile(times, 0.99).toFixed(1)}, max ${Math.max(...times).toFixed(0)} ms; ` +
      `statuses ${[...statuses].map(([status, count]) => `${status}: ${count}`).join(', ')}`,
  );
  console.log(
    `of a core: replicas ${reports.map(({ cpuMs }) => share(cpuMs)).join(' and ')}, load generator ${share((user + system) / 1000)}; ` +
      `${(reports.reduce((sum, { cpuMs }) => sum + cpuMs, 0) / times.length).toFixed(2)} ms of a replica for a create; ` +
      `memory ${reports.map(({ memoryMb }) => memoryMb.toFixed(0)).join(' and ')} MB; ` +
      `${worst?.most} machines at most on one of ${worst?.hosts} hosts`,
  );
} finally {
  agent.destroy();
  for (const child of children) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  await onServer(`drop database if exists ${DATABASE} with (force)`);
}
