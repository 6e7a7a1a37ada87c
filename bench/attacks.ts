// Attacks a control plane from outside and measures what another account notices meanwhile, and how much memory the
// control plane takes. It starts a control plane of its own on a real PostgreSQL and a fake host that answers at once.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/attacks.ts
// Creates the database `sandbar_bench_attacks` on the server of the URL and drops it at the end. Optional variables:
// BENCH_ONLY (runs only attacks whose name contains this text), BENCH_ROUNDS (requests measured, default 300).
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Attack } from './attacks/attacker.ts';
import { prepareTarget, type Tenant } from './attacks/target.ts';
import { residentMb } from './service/processes.ts';
import { measure, percentile } from './statistics.ts';

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 300);
const READS_PER_JOB = 6;
const REST_MS = 250;
/** An account may have 250 open streams, so this many accounts together can open 1,000. */
const ATTACKERS = 4;

type Figures = { get: number[]; exec: number[] };

/**
 * Measures what another account notices: the times of reads of its machine, and of jobs from start to end, a job after
 * every few reads. Calls `isEnough` after each job with the number of reads so far, and ends when it returns true.
 */
async function watch(
  { sandbar }: Tenant,
  machine: string,
  isEnough: (reads: number) => boolean | Promise<boolean> = (reads) => reads >= ROUNDS,
): Promise<Figures> {
  const figures: Figures = { get: [], exec: [] };
  do {
    figures.get.push(...(await measure(READS_PER_JOB, () => sandbar.machines.get(machine))));
    const jobs = await measure(1, async () => {
      const { id } = await sandbar.execs.start(machine, { command: 'true' });
      await sandbar.execs.wait(machine, id);
    });
    figures.exec.push(...jobs);
  } while (!(await isEnough(figures.get.length)));
  return figures;
}

/** Returns true when event streams have not asked the host for a page for a moment, so their clients take no more. */
function untilStreamsRest(host: ChildProcess): () => Promise<boolean> {
  let before = -1;
  let since = performance.now();
  return async () => {
    host.send({ report: true });
    const [reads] = (await once(host, 'message')) as [number];
    if (reads !== before) since = performance.now();
    before = reads;
    return performance.now() - since > REST_MS;
  };
}

function show(what: string, { get, exec }: Figures, pid: number): void {
  const ms = (values: number[], share: number) => `${percentile(values, share).toFixed(1)} ms`;
  console.log(
    `${what.padEnd(56)} GET median ${ms(get, 0.5)}, p99 ${ms(get, 0.99)}; exec median ${ms(exec, 0.5)}; ` +
      `control plane ${residentMb(pid)?.toFixed(0)} MB, most so far ${residentMb(pid, 'VmHWM')?.toFixed(0)} MB`,
  );
}

const requestFor = (path: string, key: string): string =>
  `GET ${path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nauthorization: Bearer ${key}\r\n\r\n`;

const target = await prepareTarget('sandbar_bench_attacks');
const { host, port } = target;
try {
  await target.start();
  const neighbour = await target.newAccount('neighbour');
  const attackers = await Promise.all(
    Array.from({ length: ATTACKERS }, (_, index) => target.newAccount(`evil${index}`)),
  );
  const newMachine = async ({ sandbar }: Tenant) => (await sandbar.machines.create({})).id;
  // Hashing the passwords of the new accounts has enlarged this process, so restart the control plane: measure one with
  // the memory use of a fresh process.
  const pid = await target.start();
  const machine = await newMachine(neighbour);
  const jobsOf = async (command: string) =>
    Promise.all(
      attackers.map(async (attacker) => {
        const on = await newMachine(attacker);
        const { id } = await attacker.sandbar.execs.start(on, { command });
        return { machine: on, job: id, key: attacker.key, path: `/v1/machines/${on}/execs/${id}/output` };
      }),
    );
  await watch(neighbour, machine);

  const attack = async (name: string, plan: Omit<Attack, 'port'>) => {
    if (!name.includes(process.env.BENCH_ONLY ?? '')) return;
    const usual = await watch(neighbour, machine);
    show(`before: ${name}`, usual, pid);
    const attacker = target.forked('attacks/attacker.ts');
    attacker.send({ port, ...plan } satisfies Attack);
    const isOpen = once(attacker, 'message');
    if (plan.requests.length > 0 && !plan.isRead) {
      const began = performance.now();
      const figures = await watch(neighbour, machine, untilStreamsRest(host));
      show(`opening, ${((performance.now() - began) / 1000).toFixed(1)} s: ${name}`, figures, pid);
    }
    await isOpen;
    show(`during: ${name}`, await watch(neighbour, machine), pid);
    attacker.send('report');
    const [report] = (await once(attacker, 'message')) as [{ open: number; statuses: Record<string, number> }];
    console.log(
      `${''.padEnd(56)} still open ${report.open} of ${plan.count}, answers ${JSON.stringify(report.statuses)}`,
    );
    attacker.kill('SIGKILL');
    await once(attacker, 'exit');
    const ended = performance.now();
    const bound = 2 * percentile(usual.get, 0.99);
    while ((await measure(20, () => neighbour.sandbar.machines.get(machine))).some((ms) => ms > bound)) await delay(10);
    const { get, exec } = await watch(neighbour, machine);
    console.log(
      `${''.padEnd(56)} GETs are as usual ${((performance.now() - ended) / 1000).toFixed(1)} s after its end`,
    );
    show(`after:  ${name}`, { get, exec }, pid);
  };

  await attack('20,800 idle connections', { count: 20_800, requests: [], isRead: false });
  const big = await jobsOf(`bytes ${24 * 1024 * 1024}`);
  for (const [who, jobs] of [
    ['one account', big.slice(0, 1)],
    ['four accounts', big],
  ] as const) {
    const requests = Array.from({ length: 1000 }, (_, index) => {
      const { path, key } = jobs[index % jobs.length] ?? { path: '', key: '' };
      return requestFor(`${path}?limit=1048576&offset=${index * 1000}`, key);
    });
    await attack(`1,000 unread streams of ${who}`, { count: 1000, requests, isRead: false });
  }
  const [chatty] = await jobsOf('sleep');
  if (!chatty) throw new Error('no job');
  host.send({ chatty: [chatty], everyMs: 1 });
  const readers = [requestFor(chatty.path, chatty.key)];
  await attack('300 readers of one chatty job', { count: 300, requests: readers, isRead: true });
  host.send({});
} finally {
  await target.close();
}
