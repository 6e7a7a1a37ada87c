// Measures creates of two replicas on one PostgreSQL with 1,000 hosts that answer at once: requests arrive at a steady
// rate, at both replicas and from many accounts. Replicas, PostgreSQL, the fake hosts and this process share the
// processors, and the output says what each took. The replicas are the control plane as the service starts it, and
// reach the hosts over TLS.
//
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/fleet/create.ts --rate 300 --seconds 20
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import { insertKey } from '@sandbar/control-plane/api-keys/store.ts';
import type { Db } from '@sandbar/control-plane/db/database.ts';
import { migrate } from '@sandbar/control-plane/db/migrate.ts';
import { registerHost } from '@sandbar/control-plane/hosts/store.ts';
import { sql } from 'kysely';
import { freePort } from '../../packages/control-plane/tests/support/free-ports.ts';
import { percentile } from '../statistics.ts';
import { createDatabase } from './database.ts';
import { hostIds, infoOf } from './fake-hosts.ts';
import { insertHosts, type JoinedHosts, startHosts } from './joined-hosts.ts';
import { cpuMsOf, cpuMsOfPostgres, memoryOf } from './process-cost.ts';
import { type Replica, startReplica } from './replicas.ts';

const { values } = parseArgs({
  options: {
    rate: { type: 'string', default: '300' },
    seconds: { type: 'string', default: '20' },
    rounds: { type: 'string', default: '1' },
    hosts: { type: 'string', default: '1000' },
    accounts: { type: 'string', default: '100' },
    replicas: { type: 'string', default: '2' },
    /** How many creates are always under way, each followed by the next one at once. Replaces `rate`. */
    parallel: { type: 'string' },
    /** Replaces the hosts by functions in the replicas, so that calls to hosts cost nothing. */
    'no-calls': { type: 'boolean', default: false },
  },
});
const [rate, seconds, hostCount] = [Number(values.rate), Number(values.seconds), Number(values.hosts)];
const WARM_UP_SEC = 5;
/** Until the comparisons that follow when a replica begins to listen to hosts are over. */
const SETTLE_MS = 10_000;

const database = await createDatabase('sandbar_bench_fleet');

async function insertAccounts(db: Db): Promise<string[]> {
  const keys: string[] = [];
  for (let index = 0; index < Number(values.accounts); index++) {
    const id = await insertAccount(db, { email: `bench-${index}@example.test`, tier: 'enterprise' });
    keys.push(await insertKey(db, id, 'full', 'bench'));
  }
  const most = 1_000_000_000;
  await sql`update accounts set limit_machines = ${most}, limit_vcpus = ${most}, limit_memory_mb = ${most},
    limit_storage_gb = ${most}`.execute(db);
  return keys;
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
  const one = async (index: number, dueAt = performance.now()) => {
    const lateMs = performance.now() - dueAt;
    times.push(lateMs + (await create(pick(ports, index), pick(keys, Math.floor(Math.random() * keys.length)))));
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
    const dueAt = began + (index * 1000) / rate;
    // A timer is not exact, so several requests may be due at once.
    const waitMs = dueAt - performance.now();
    if (waitMs > 0) await delay(waitMs);
    open.push(one(index, dueAt));
  }
  await Promise.all(open);
  return times;
}

async function startReplicas(): Promise<{ replicas: Replica<unknown>[]; ports: number[] }> {
  const replicas: Replica<unknown>[] = [];
  const ports: number[] = [];
  for (let index = 0; index < Number(values.replicas); index++) {
    const port = await freePort();
    const env = {
      ...{ SANDBAR_DATABASE_URL: database.url, SANDBAR_LOCAL_HOST: '0', SANDBAR_LISTEN: `127.0.0.1:${port}` },
      ...{ SANDBAR_RATE_MUTATING: '100000/100000', BENCH_HOSTS: values.hosts },
    };
    const main = values['no-calls'] ? new URL('./replica.ts', import.meta.url) : undefined;
    replicas.push(await startReplica(env, main));
    ports.push(port);
  }
  return { replicas, ports };
}

async function startJoinedHosts(): Promise<JoinedHosts> {
  const hosts = await database.asOwner((db) => startHosts(db, hostCount, 0));
  await database.asOwner((db) => insertHosts(db, hosts));
  while ((await hosts.countStreams()) < hostCount) await delay(100);
  await delay(SETTLE_MS);
  return hosts;
}

/** Processor time of everybody so far, in milliseconds. */
async function readCpu(replicas: readonly Replica<unknown>[], hosts: JoinedHosts | undefined) {
  const { user, system } = process.cpuUsage();
  const postgres = await database.asOwner(async (db) => {
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(db);
    return cpuMsOfPostgres(rows[0]?.pid ?? 0);
  });
  const ofReplicas = replicas.reduce((sum, { pid }) => sum + cpuMsOf(pid), 0);
  const load = (user + system) / 1000;
  return {
    replicas: ofReplicas,
    PostgreSQL: postgres,
    'fake hosts': hosts ? cpuMsOf(hosts.pid) : 0,
    'load generator': load,
  };
}

async function measureOnce(keys: readonly string[]): Promise<number[]> {
  const { replicas, ports } = await startReplicas();
  const hosts = values['no-calls'] ? undefined : await startJoinedHosts();
  try {
    await run(WARM_UP_SEC, ports, keys);
    statuses.clear();
    const before = await readCpu(replicas, hosts);
    const began = performance.now();
    const times = await run(seconds, ports, keys);
    const tookSec = (performance.now() - began) / 1000;
    const after = await readCpu(replicas, hosts);
    const costs = Object.entries(after).map(([name, ms]) => {
      const spentMs = ms - before[name as keyof typeof before];
      return `${name} ${(spentMs / times.length).toFixed(2)} ms (${(spentMs / tookSec / 10).toFixed(0)} %)`;
    });
    console.log(
      `${(times.length / tookSec).toFixed(0)} creates a second for ${tookSec.toFixed(0)} s; ` +
        `p50 ${percentile(times, 0.5).toFixed(1)}, p95 ${percentile(times, 0.95).toFixed(1)}, ` +
        `p99 ${percentile(times, 0.99).toFixed(1)}, max ${Math.max(...times).toFixed(0)} ms; ` +
        `statuses ${[...statuses].map(([status, count]) => `${status}: ${count}`).join(', ')}`,
    );
    console.log(`processor time for a create (and % of a core): ${costs.join(', ')}`);
    console.log(`memory: ${replicas.map(({ pid }) => memoryOf(pid).rss.toFixed(0)).join(' and ')} MB`);
    return times;
  } finally {
    for (const replica of replicas) await replica.stop();
    await hosts?.stop();
  }
}

async function printSpread(): Promise<void> {
  const { rows } = await database.asOwner((db) =>
    sql<{ most: number; hosts: number }>`
      select max(machines) as most, count(*) as hosts
      from (select count(*) as machines from machines group by host_id) as counts`.execute(db),
  );
  console.log(`${rows[0]?.most} machines at most on one of ${rows[0]?.hosts} hosts`);
}

try {
  const keys = await database.asOwner(async (db) => {
    await migrate(db);
    if (values['no-calls']) for (const id of hostIds(hostCount)) await registerHost(db, infoOf(id));
    return insertAccounts(db);
  });
  for (let round = 0; round < Number(values.rounds); round++) {
    await database.asOwner((db) => sql`truncate machines, operations, activity, meters cascade`.execute(db));
    if (!values['no-calls']) await database.asOwner((db) => sql`truncate hosts cascade`.execute(db));
    await measureOnce(keys);
    await printSpread();
  }
} finally {
  agent.destroy();
  await database.drop();
}
