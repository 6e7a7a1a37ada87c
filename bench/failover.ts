// Kills the primary of a PostgreSQL cluster under Patroni, several times and under load, and measures how long requests
// to two replicas of the control plane fail, beside the time that Patroni itself needs. Afterwards it checks that no
// acknowledged write is lost or doubled (CTL-13). The exit code is 1 if one is.
//
//   node bench/failover.ts [--kills 3] [--nodes 2] [--clients 6]
//
// Needs Debian's packages patroni, etcd-server and postgresql-15.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { HostSummary, NewAccount } from '@sandbar/contract/admin.ts';
import { callAdmin } from '../packages/control-plane/tests/support/admin.ts';
import { FakeHost } from '../packages/control-plane/tests/support/fake-host.ts';
import { type Node, PatroniCluster } from './failover/cluster.ts';
import { Load, type Outcome } from './failover/load.ts';
import { type Replica, startReplica } from './failover/replica.ts';
import { findDifferences } from './failover/verdict.ts';

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '3' },
    nodes: { type: 'string', default: '2' },
    clients: { type: 'string', default: '6' },
  },
});
const DATABASE = 'sandbar';
const SETTLED_MS = 8_000;

const folder = mkdtempSync(join(tmpdir(), 'sandbar-failover-planes-'));
const cluster = new PatroniCluster();
const replicas: Replica[] = [];
const host = new FakeHost(join(folder, 'host.sock'), { memory_mb: 2 ** 30, isolation: 'kvm', subnet: '10.83.0.0/16' });

/** Times in milliseconds after the kill. */
type Row = { promoted: number; writable: number; firstFailure: number; lastFailure: number; failed: number };

async function main(): Promise<boolean> {
  await host.listen();
  await cluster.start(Number(values.nodes));
  const leader = await cluster.leader();
  if (!leader) throw new Error('The cluster has no leader.');
  await cluster.query(leader, `create database ${DATABASE}`, 60_000);
  await cluster.query(leader, 'create table bench_probe (at timestamptz)', 60_000);
  const databaseUrl = cluster.url(DATABASE);
  for (const name of ['a', 'b'])
    replicas.push(await startReplica(folder, name, databaseUrl, join(folder, 'host.sock')));
  const load = new Load(replicas, await createAccount());
  load.start(Number(values.clients));
  await delay(3_000);

  const rows: Row[] = [];
  for (let number = 0; number < Number(values.kills); number++) rows.push(await killOnce(load));
  await load.stop();
  await delay(SETTLED_MS);
  report(rows, load);
  const [first] = replicas;
  const differences = first ? await findDifferences(load, host, databaseUrl, first.adminSocket) : ['no replica'];
  const wrong = load.outcomes.filter(isWrong);
  for (const { what, status } of wrong.slice(0, 10)) console.log(`wrong answer to ${what}: ${status}`);
  for (const difference of differences.slice(0, 20)) console.log(difference);
  console.log(`${differences.length} differences, ${wrong.length} failures other than 503 with Retry-After`);
  return differences.length === 0 && wrong.length === 0;
}

async function createAccount(): Promise<{ key: string; accountId: string }> {
  for (const { adminSocket } of replicas) {
    for (let isReady = false; !isReady; ) {
      const { json } = await callAdmin<{ hosts: HostSummary[] }>(adminSocket, '/admin/hosts');
      isReady = json.hosts.some(({ state }) => state === 'ready');
      if (!isReady) await delay(50);
    }
  }
  const socket = replicas[0]?.adminSocket ?? '';
  const body = { email: 'bench@example.test', tier: 'enterprise', billing_mode: 'prepaid', credit_eur: '1000' };
  const { json } = await callAdmin<NewAccount>(socket, '/admin/accounts', body);
  const most = { machines: 100_000, vcpus: 100_000, memory_mb: 100_000_000, storage_gb: 1_000_000 };
  await callAdmin(socket, `/admin/accounts/${json.account_id}/limits`, most);
  return { key: json.api_key, accountId: json.account_id };
}

async function killOnce(load: Load): Promise<Row> {
  await cluster.untilReplicated();
  const leader = await cluster.leader();
  if (!leader) throw new Error('The cluster has no leader.');
  const others = cluster.nodes.filter((node) => node !== leader);
  const from = load.outcomes.length;
  const killedAt = performance.now();
  cluster.kill(leader);
  const promoted = await promotionOf(others);
  // Patroni of the killed node starts again, as systemd would do it, but not before its lock has ended.
  cluster.launchNode(leader);
  await firstCommit(others);
  const writable = performance.now();
  await delay(SETTLED_MS);
  const failures = load.outcomes.slice(from).filter(({ status }) => isFailure(status));
  const since = (at: number | undefined) => (at ?? killedAt) - killedAt;
  console.log(`killed ${leader.name}`);
  return {
    promoted: promoted - killedAt,
    writable: writable - killedAt,
    firstFailure: since(failures[0]?.at),
    lastFailure: since(failures.at(-1)?.at),
    failed: failures.length,
  };
}

/** Waits until one of the nodes has become the primary. Returns the time at which that was seen. */
async function promotionOf(nodes: readonly Node[]): Promise<number> {
  const isPrimary = async (node: Node) => {
    const [row] = await cluster.query(node, 'select pg_is_in_recovery() as is_standby').catch(() => []);
    return row?.is_standby === false;
  };
  for (;;) {
    if ((await Promise.all(nodes.map(isPrimary))).includes(true)) return performance.now();
    await delay(20);
  }
}

/** Waits until a plain client can commit a row. With strict synchronous replication that needs a standby. */
async function firstCommit(nodes: readonly Node[]): Promise<void> {
  const commit = (node: Node) =>
    cluster.query(node, 'insert into bench_probe values (now())', 500).then(
      () => true,
      () => false,
    );
  while (!(await Promise.all(nodes.map(commit))).includes(true)) await delay(20);
}

const isFailure = (status: number): boolean => status === 0 || status >= 500;
const isWrong = ({ status, retryAfter, what }: Outcome): boolean =>
  status !== 503 || !retryAfter
    ? !(status < 300 && status > 0) && !(what === 'delete' && status < 500 && status > 0)
    : false;

function report(rows: readonly Row[], load: Load): void {
  const seconds = (ms: number) => (ms / 1000).toFixed(1);
  console.log(
    '| kill | Patroni promoted a standby | a plain client commits again | first request failed | last request failed | failed |',
  );
  console.log('|---|---|---|---|---|---|');
  rows.forEach(({ promoted, writable, firstFailure, lastFailure, failed }, index) => {
    const times = [promoted, writable, firstFailure, lastFailure].map(seconds);
    console.log(`| ${index + 1} | ${times.join(' | ')} | ${failed} |`);
  });
  const { machines, credits, execs, outcomes } = load;
  console.log(
    `${machines.size} creates, ${credits.size} credits and ${execs.size} execs acknowledged, ${outcomes.length} requests`,
  );
}

let isFine = false;
try {
  isFine = await main();
} finally {
  for (const replica of replicas) replica.process.kill('SIGKILL');
  await host.away().catch(() => undefined);
  await cluster.close();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(isFine ? 0 : 1);
