// A service of one checkout that is measured in turns with those of others (bench/turns.ts). It loads the code of its
// checkout, starts the service, and makes one measurement for each line that it reads. It answers each line, and its own
// start, with one line of JSON.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import type { Mode, ModeService } from '../service/bench-service.ts';
import type { Measured, Task } from '../turns.ts';

const [checkout = '', mode = 'pool'] = process.argv.slice(2);
const load = <T>(file: string): Promise<T> => import(path.join(checkout, file)) as Promise<T>;
const { BenchService } = await load<typeof import('../service/bench-service.ts')>('bench/service/bench-service.ts');
const { waitForFullPool } = await load<typeof import('../service/host-info.ts')>('bench/service/host-info.ts');
const { anonymousMb, qemuPids } = await load<typeof import('../service/processes.ts')>('bench/service/processes.ts');

/** Clones in the pool. */
const POOL = 4;
/** Pause before a create without the pool, in which the host starts the next spare QEMU. */
const SPARE_MS = 1_200;
/** Pause before each measurement, so that the end of the previous one does not disturb it. */
const QUIET_MS = 300;
/** After this time a new machine has written its first changes to its disk. */
const IDLE_MS = 10_000;
const EXECS = 5;

const say = (line: Measured | { ready: true } | { error: string }) => console.log(JSON.stringify(line));
const progress = {
  say: () => undefined,
  step: <T>(_: string, work: (say: () => void) => Promise<T>) => work(() => {}),
};

/** CPU time of all threads of a process so far, in ms. */
function cpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const ns = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  );
  return ns.reduce((sum, time) => sum + time, 0) / 1e6;
}

async function measure(service: ModeService): Promise<void> {
  const { sandbar, paths } = service;
  const settle = () => (mode === 'pool' ? waitForFullPool(paths.hostAgentSocket) : delay(SPARE_MS));
  const timed = async <T>(work: () => Promise<T>) => {
    const began = performance.now();
    return { result: await work(), ms: performance.now() - began };
  };
  const qemuOf = (id: string) => qemuPids(paths.runMachines).get(id) ?? Number.NaN;
  const echo = (id: string) => sandbar.execs.start(id, { command: 'echo hi' }, { waitMs: 30_000 });

  const tasks: Record<Task, () => Promise<Measured>> = {
    async single() {
      await settle();
      await delay(QUIET_MS);
      await sandbar.account.get(); // opens the connection
      // CPU time that each clone in the pool has used until now, by process id.
      const waiting = new Map([...qemuPids(`${paths.run}/pool`).values()].map((pid) => [pid, cpuMs(pid)]));
      const create = await timed(() => sandbar.machines.create());
      const { id } = create.result;
      const pid = qemuOf(id);
      const created = cpuMs(pid);
      const first = await timed(() => echo(id));
      const ran = cpuMs(pid);
      const rest: number[] = [];
      for (let exec = 0; exec < EXECS; exec++) {
        await delay(QUIET_MS);
        rest.push((await timed(() => echo(id))).ms);
      }
      await sandbar.machines.destroy(id);
      return {
        'create, ms': [create.ms],
        'first exec, ms': [first.ms],
        'create and first exec, ms': [create.ms + first.ms],
        'exec at rest, ms': rest,
        'CPU of QEMU for the create, ms': [created - (waiting.get(pid) ?? 0)],
        'CPU of QEMU for the first exec, ms': [ran - created],
      };
    },
    async burst() {
      await settle();
      await delay(QUIET_MS);
      await sandbar.account.get();
      const { result, ms } = await timed(() =>
        Promise.all(Array.from({ length: 20 }, () => sandbar.machines.create())),
      );
      await Promise.all(result.map(({ id }) => sandbar.machines.destroy(id)));
      return { '20 creates at once, ms': [ms] };
    },
    async idle() {
      const ids: string[] = [];
      for (let machine = 0; machine < POOL; machine++) {
        await settle();
        const { id } = await sandbar.machines.create();
        await echo(id);
        ids.push(id);
      }
      await settle();
      await delay(IDLE_MS);
      const memory = ids.map((id) => anonymousMb(qemuOf(id)));
      await Promise.all(ids.map((id) => sandbar.machines.destroy(id)));
      return { 'anonymous memory of an idle machine, MB': memory };
    },
  };

  say({ ready: true });
  for await (const task of createInterface(process.stdin)) {
    try {
      say(await tasks[task as Task]());
    } catch (error) {
      say({ error: String(error) });
    }
  }
}

const bench = await BenchService.prepare(POOL, progress as never, new AbortController().signal);
try {
  await measure(await bench.in(mode as Mode));
} finally {
  await bench.stop().catch(console.error);
  for (const leak of await bench.remove()) console.error(leak);
}
