// Measures what one replica costs while nothing happens: its processor time and its memory, with 1,000 joined hosts
// that have 100,000 running machines. The replica is the control plane as the service starts it. It listens to all
// hosts and compares all of them, over TLS. The hosts are fakes in another process.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/fleet/idle.ts
//   BENCH_HOSTS (1000), BENCH_MACHINES of each host (100), BENCH_WARM_SEC (90), BENCH_SEC (60), BENCH_ROUNDS (1)
//   BENCH_PLAIN=1: without the options of Node and malloc with which the service starts a control plane
import { setTimeout as delay } from 'node:timers/promises';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import type { Db } from '@sandbar/control-plane/db/database.ts';
import { migrate } from '@sandbar/control-plane/db/migrate.ts';
import { sql } from 'kysely';
import { percentile } from '../statistics.ts';
import { createDatabase } from './database.ts';
import { hostIdOf, machineIdOf } from './ids.ts';
import { insertHosts, startHosts } from './joined-hosts.ts';
import { cpuMsOf, type Memory, memoryOf } from './process-cost.ts';
import { startReplica } from './replicas.ts';

const numberOf = (name: string, fallback: number) => Number(process.env[name] ?? fallback);
const hostCount = numberOf('BENCH_HOSTS', 1_000);
const machinesOfHost = numberOf('BENCH_MACHINES', 100);
const warmSec = numberOf('BENCH_WARM_SEC', 90);
const measuredSec = numberOf('BENCH_SEC', 60);
const rounds = numberOf('BENCH_ROUNDS', 1);
const LISTENING_MS = 120_000;

const database = await createDatabase('sandbar_bench_idle');
const env = { SANDBAR_DATABASE_URL: database.url, SANDBAR_LOCAL_HOST: '0' };

/** Inserts the machines of all hosts. */
async function insertMachines(db: Db): Promise<void> {
  const accountId = await insertAccount(db, { email: 'bench@example.test', tier: 'enterprise' });
  const batch = 100;
  for (let first = 0; first < hostCount; first += batch) {
    const rows = Array.from({ length: Math.min(batch, hostCount - first) * machinesOfHost }, (_, index) => {
      const host = first + Math.floor(index / machinesOfHost);
      return { id: machineIdOf(first * machinesOfHost + index), host_id: hostIdOf(host) };
    });
    await sql`
      insert into machines (id, account_id, host_id, name, state, generation, vcpus, memory_mb, rootfs_size_gb, stack,
        private_ip, metadata, isolation, on_expiry, started_at)
      select id, ${accountId}, host_id, 'idle', 'running', 1, 1, 512, 10, 'base',
        host_id::text || id::text, '{}', 'kvm', 'destroy', now()
      from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as made (id uuid, host_id uuid)`.execute(db);
  }
}

const inMb = ({ rss, pss, anonymous, peak }: Memory) =>
  `${rss.toFixed(0)} MB resident (PSS ${pss.toFixed(0)}, anonymous ${anonymous.toFixed(0)}, peak ${peak.toFixed(0)})`;

async function measureOnce(): Promise<{ percent: number; rss: number }> {
  await database.asOwner((db) => sql`truncate machines, hosts, accounts cascade`.execute(db));
  const hosts = await database.asOwner((db) => startHosts(db, hostCount, machinesOfHost));
  // The first start of a control plane compiles TypeScript, and later ones read the compiled code.
  await (await startReplica(env)).stop();
  const replica = await startReplica(env);
  await delay(5_000);
  console.log(`before the first host: ${inMb(memoryOf(replica.pid))}`);
  const began = performance.now();
  await database.asOwner(async (db) => {
    await insertHosts(db, hosts);
    await insertMachines(db);
    await sql`analyze machines, hosts`.execute(db);
  });
  while ((await hosts.countStreams()) < hostCount) {
    if (performance.now() - began > LISTENING_MS) throw new Error('The replica does not reach all hosts.');
    await delay(100);
  }
  console.log(`listens to ${hostCount} hosts ${((performance.now() - began) / 1000).toFixed(0)} s after they joined`);
  await delay(warmSec * 1_000);
  const [before, hostsBefore, from] = [cpuMsOf(replica.pid), cpuMsOf(hosts.pid), performance.now()];
  await delay(measuredSec * 1_000);
  const elapsedMs = performance.now() - from;
  const percent = ((cpuMsOf(replica.pid) - before) / elapsedMs) * 100;
  const ofHosts = ((cpuMsOf(hosts.pid) - hostsBefore) / elapsedMs) * 100;
  const memory = memoryOf(replica.pid);
  console.log(`idle: ${percent.toFixed(1)} % of a core, ${inMb(memory)}; the fake hosts ${ofHosts.toFixed(1)} %`);
  await replica.stop();
  await hosts.stop();
  return { percent, rss: memory.rss };
}

try {
  await database.asOwner(migrate);
  const all: Awaited<ReturnType<typeof measureOnce>>[] = [];
  for (let round = 0; round < rounds; round++) all.push(await measureOnce());
  const median = (name: 'percent' | 'rss') =>
    percentile(
      all.map((one) => one[name]),
      0.5,
    ).toFixed(1);
  console.log(`median of ${rounds}: ${median('percent')} % of a core, ${median('rss')} MB`);
} finally {
  await database.drop();
}
