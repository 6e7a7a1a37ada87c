// Measures the CPU time and the anonymous memory of the QEMU processes of idle machines.
import { setTimeout as delay } from 'node:timers/promises';
import type { Mode, ModeService } from '../bench-service.ts';
import type { Context } from '../context.ts';
import { waitForFullPool } from '../host-info.ts';
import { anonymousMb, cpuSeconds, hasRun, qemuPids } from '../processes.ts';
import { runEcho } from './create.ts';

/** How many machines are measured at the same time. Each one gives a value of its own. */
const MACHINES = 3;
/** Pause between the last activity (jobs, filling the pool) and the measurement. */
const SETTLE_MS = 5000;
const CPU_PERCENT = 1;
const ANONYMOUS_MB = 28;

const NAMES: Record<Mode, string> = {
  pool: 'idle machine from the pool',
  template: 'idle machine restored from a template',
  cold: 'idle machine, cold boot',
};

export async function benchIdle({ mode, sandbar, paths }: ModeService, context: Context): Promise<void> {
  const { sizes, signal, note } = context;
  const hasPool = mode === 'pool' && (await waitForFullPool(paths.hostAgentSocket));
  const ids = await Promise.all(Array.from({ length: MACHINES }, async () => (await sandbar.machines.create()).id));
  // Run a job first, because an idle machine in practice is one that was used before.
  for (const id of ids) await runEcho(sandbar, id);
  if (hasPool) await waitForFullPool(paths.hostAgentSocket);
  await delay(SETTLE_MS, undefined, { signal });
  const pids = qemuPids(paths.runMachines);
  const machines = ids.flatMap((id) => pids.get(id) ?? []);
  if (machines.length < MACHINES) throw new Error(`the pid files of ${MACHINES} machines name ${machines.length}`);
  const pooled = hasPool ? [...qemuPids(`${paths.run}/pool`).values()].filter(hasRun) : [];
  if (hasPool && pooled.length === 0) note('No pid file of a pooled clone was found: it was not measured.');

  const all = [...machines, ...pooled];
  const before = new Map(all.map((pid) => [pid, cpuSeconds(pid)]));
  const began = performance.now();
  await delay(sizes.idleSec * 1000, undefined, { signal });
  const seconds = (performance.now() - began) / 1000;
  const percent = new Map(all.map((pid) => [pid, (100 * (cpuSeconds(pid) - (before.get(pid) ?? 0))) / seconds]));

  reportIdle(context, NAMES[mode], machines, percent, CPU_PERCENT);
  if (pooled.length > 0) reportIdle(context, 'clone waiting in the pool', pooled, percent, 0);
  await Promise.all(ids.map((id) => sandbar.machines.destroy(id)));
}

function reportIdle(
  { report }: Context,
  name: string,
  pids: readonly number[],
  percent: ReadonlyMap<number, number>,
  cpuBound: number,
): void {
  const cpu = pids.map((pid) => percent.get(pid) ?? Number.NaN);
  report({ what: `${name}: CPU`, unit: '%', values: cpu, bounds: [{ of: 'max', atMost: cpuBound }] });
  const memory = [{ of: 'max' as const, atMost: ANONYMOUS_MB }];
  report({ what: `${name}: anonymous memory`, unit: 'MB', values: pids.map(anonymousMb), bounds: memory });
}
