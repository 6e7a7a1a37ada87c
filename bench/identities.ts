// Creates many machines and kills the host agent again and again meanwhile. Checks that no two machines share a name,
// an address, an id or random numbers (CLN-1 to CLN-3). Prints what is shared or missing; the exit code is then 1.
//   node_modules/node/bin/node bench/identities.ts
// By default there are 200 machines and 50 kills, which needs 10 GB of memory and takes 8 minutes.
// Optional variables: BENCH_MACHINES, BENCH_KILLS, BENCH_SEED (chooses the moments of the kills).
import { setTimeout as delay } from 'node:timers/promises';
import type { homePaths } from '@sandbar/contract/home.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { FACTS, parseFacts, UNIQUE } from '../tests/e2e/support/identity-facts.ts';
import { createRandom } from './kills/random.ts';
import { BenchService } from './service/bench-service.ts';
import { readPid } from './service/processes.ts';

const MACHINES = Number(process.env.BENCH_MACHINES ?? 200);
const KILLS = Number(process.env.BENCH_KILLS ?? 50);
const SEED = Number(process.env.BENCH_SEED ?? 1);
/** Creates at the same time: more than the pool has, so that some machines are clones made on demand. */
const AT_ONCE = 4;
const POOL_SIZE = 3;
/** A random time up to this passes after the agent is back and before it is killed again. */
const BETWEEN_KILLS_MS = 1500;
const SIZE = { memory_mb: 256, rootfs_size_gb: 2 };
const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main(): Promise<number> {
  const bench = await BenchService.prepare(POOL_SIZE, progress, stop);
  try {
    const { sandbar, paths } = await bench.in('pool');
    const killing: Killing = { kills: 0 };
    const [ids] = await Promise.all([createMachines(sandbar, killing), killRepeatedly(paths, killing)]);
    progress.say(`${ids.length} machines, ${killing.kills} kills of the host agent`);
    const findings = findShared(await readFacts(sandbar, ids));
    for (const finding of findings) progress.say(finding);
    progress.say(findings.length === 0 ? 'All identities differ.' : `${findings.length} findings`);
    return findings.length === 0 ? 0 : 1;
  } finally {
    await bench.stop(hurry);
    for (const leak of await bench.remove()) progress.say(`left behind: ${leak}`);
  }
}

/** `kills`: how often the agent was killed so far. */
type Killing = { kills: number };

/**
 * Returns the ids of the machines. They are spread over all kills. A create that fails because the agent was killed is
 * repeated with the same key.
 */
async function createMachines(sandbar: Client, killing: Killing): Promise<string[]> {
  const ids: string[] = [];
  let next = 0;
  const client = async () => {
    while (next < MACHINES) {
      const number = next++;
      const idempotencyKey = `machine-${number}`;
      while (killing.kills < Math.floor((number * KILLS) / MACHINES)) await delay(20, undefined, { signal: stop });
      for (;;) {
        stop.throwIfAborted();
        const machine = await sandbar.machines.create(SIZE, { idempotencyKey }).catch(() => undefined);
        if (machine?.state === 'running') {
          ids.push(machine.id);
          break;
        }
        await delay(100);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, client));
  return ids;
}

async function killRepeatedly(paths: ReturnType<typeof homePaths>, killing: Killing): Promise<void> {
  const random = createRandom(SEED, 0);
  let last: number | undefined;
  while (killing.kills < KILLS) {
    const pid = readPid(paths.pidFile('host-agent'));
    if (pid === undefined || pid === last) {
      await delay(20, undefined, { signal: stop });
      continue;
    }
    await delay(random.next() * BETWEEN_KILLS_MS, undefined, { signal: stop });
    process.kill(pid, 'SIGKILL');
    last = pid;
    killing.kills++;
  }
}

type Facts = ReadonlyMap<string, string>;

async function readFacts(sandbar: Client, ids: readonly string[]): Promise<Facts[]> {
  const all: Facts[] = [];
  for (const id of ids) {
    const job = await sandbar.execs.start(id, { command: FACTS });
    await sandbar.execs.wait(id, job.id);
    const { data } = await sandbar.execs.output(id, job.id);
    all.push(parseFacts(Buffer.from(data, 'base64').toString()));
  }
  return all;
}

/** Returns a line for each value that is missing or that several machines share. */
function findShared(all: readonly Facts[]): string[] {
  return UNIQUE.flatMap((name) => {
    const values = all.map((facts) => facts.get(name) ?? '');
    const missing = values.filter((value) => value === '').length;
    const shared = new Set(values.filter((value, at) => value !== '' && values.indexOf(value) !== at));
    return [
      ...(missing > 0 ? [`${name}: missing on ${missing} machines`] : []),
      ...[...shared].map((value) => `${name}: several machines have ${value}`),
    ];
  });
}

process.exitCode = await main();
