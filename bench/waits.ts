// Opens 1,000 event streams and 1,000 long polls that wait for 40 running jobs. Measures how long the requests of
// another account take meanwhile, and how much memory the control plane uses. The benchmark starts its own control
// plane, with a real PostgreSQL server and a fake host.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/waits.ts
// Creates the database `sandbar_bench_waits` on the server of the URL and drops it at the end. Optional variables:
// BENCH_SECONDS (how long each phase is measured, default 8), BENCH_NODE_OPTIONS (for the control plane, to profile
// it).
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostJob, HostMessage } from './attacks/host.ts';
import { prepareTarget } from './attacks/target.ts';
import { cpuSeconds, residentMb } from './service/processes.ts';
import { percentile } from './statistics.ts';
import type { Plan, Received, Wait } from './waits/clients.ts';

const SECONDS = Number(process.env.BENCH_SECONDS ?? 8);
/** An account may have 256 open streams, so this many accounts together can open 1,000. */
const ACCOUNTS = 4;
const JOBS_PER_ACCOUNT = 10;
const STREAMS = 1_000;
const POLLS = 1_000;
const READ_EVERY_MS = 10;
/** How often each job prints a line, in the phases in which jobs print. */
const PRINT_MS = [1_000, 100];

const nodeOptions = (process.env.BENCH_NODE_OPTIONS ?? '').split(' ').filter(Boolean);
const target = await prepareTarget('sandbar_bench_waits', nodeOptions);
const tell = (message: HostMessage) => target.host.send(message);
try {
  await target.start();
  const neighbour = await target.newAccount('neighbour');
  const accounts = await Promise.all(
    Array.from({ length: ACCOUNTS }, (_, index) => target.newAccount(`waiting${index}`)),
  );
  // Hashing the passwords of the new accounts has enlarged this process, so measure a fresh one.
  const pid = await target.start();
  const { id: machine } = await neighbour.sandbar.machines.create({});
  const jobs: (HostJob & { key: string })[] = [];
  for (const { sandbar, key } of accounts) {
    const { id: on } = await sandbar.machines.create({});
    for (let count = 0; count < JOBS_PER_ACCOUNT; count++) {
      const { id } = await sandbar.execs.start(on, { command: 'sleep' });
      jobs.push({ machine: on, job: id, key });
    }
  }

  /** Reads the neighbour's machine every `READ_EVERY_MS`, for `SECONDS`, and prints how long the reads took. */
  const watch = async (phase: string) => {
    const times: number[] = [];
    const busy = cpuSeconds(pid);
    const began = performance.now();
    const read = async () => {
      const from = performance.now();
      await neighbour.sandbar.machines.get(machine);
      times.push(performance.now() - from);
    };
    // A read begins at its time, also when the one before has no answer yet. So a pause of the control plane counts as
    // often as it would delay such a client.
    const reads: Promise<void>[] = [];
    for (let at = 0; at < SECONDS * 1000; at += READ_EVERY_MS) {
      await delay(Math.max(0, began + at - performance.now()));
      reads.push(read());
    }
    await Promise.all(reads);
    const ms = (share: number) => `${percentile(times, share).toFixed(1)}`;
    const cores = (cpuSeconds(pid) - busy) / ((performance.now() - began) / 1000);
    console.log(
      `${phase.padEnd(48)} GET median ${ms(0.5)} ms, p99 ${ms(0.99)} ms, most ${ms(1)} ms (${times.length}); ` +
        `control plane ${residentMb(pid)?.toFixed(0)} MB, most so far ${residentMb(pid, 'VmHWM')?.toFixed(0)} MB, ` +
        `${cores.toFixed(2)} cores`,
    );
  };
  const report = async (clients: ChildProcess) => {
    clients.send('report');
    const [{ open, statuses, answers, streamBytes }] = (await once(clients, 'message')) as [Received];
    console.log(
      `${''.padEnd(48)} ${open} connections open, statuses ${JSON.stringify(statuses)}, ` +
        `${answers} polls answered, ${streamBytes} bytes of streams`,
    );
  };

  await watch('before');
  const waits = Array.from({ length: STREAMS + POLLS }, (_, index): Wait => {
    const { machine: on, job, key } = jobs[index % jobs.length] ?? { machine: '', job: '', key: '' };
    const path = `/v1/machines/${on}/execs/${job}`;
    const round = Math.floor(index / jobs.length);
    if (round % 2 === 0) return { kind: 'stream', path: `${path}/output`, key };
    return round % 4 === 1 ? { kind: 'end', path, key } : { kind: 'output', path: `${path}/output`, key };
  });
  const clients = target.forked('waits/clients.ts');
  const areOpen = once(clients, 'message');
  clients.send({ port: target.port, waits } satisfies Plan);
  await watch(`while ${waits.length} open`);
  await areOpen;
  await report(clients);
  await watch('all open, the jobs are silent');
  for (const everyMs of PRINT_MS) {
    tell({ chatty: jobs, everyMs });
    await watch(`all open, a line of each job every ${everyMs} ms`);
    await report(clients);
  }
  tell({});
  await watch('all open, the jobs are silent');
  tell({ end: jobs });
  await watch('all jobs end');
  await report(clients);
  clients.kill('SIGKILL');
  await once(clients, 'exit');
  await watch('after');
} finally {
  await target.close();
}
