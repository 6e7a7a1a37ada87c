// Times many creates at once, more than the pool has clones, until the last machine runs.
import type { ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import { waitForFullPool } from '../host-info.ts';
import { noTimes } from '../references.ts';

/** Bounds in ms until all machines run, for the small and for the large burst. */
const BOUNDS_MS = [1500, 4500] as const;

export async function benchBurst(service: ModeService, context: Context): Promise<void> {
  for (const [at, count] of context.sizes.burst.entries()) await burst(service, context, count, BOUNDS_MS[at] ?? 0);
}

async function burst({ sandbar, paths }: ModeService, context: Context, count: number, boundMs: number): Promise<void> {
  const { sizes, references: yardsticks, report } = context;
  const references = noTimes();
  const all: number[] = [];
  const each: number[] = [];
  await repeat(context, sizes.bursts, async () => {
    await yardsticks.sample(references);
    await waitForFullPool(paths.hostAgentSocket);
    await keepConnected(sandbar);
    const { ms, result } = await timed(() =>
      Promise.allSettled(Array.from({ length: count }, () => timed(() => sandbar.machines.create()))),
    );
    all.push(ms);
    for (const create of result) if (create.status === 'fulfilled') each.push(create.value.ms);
    const machines = await sandbar.machines.list();
    const running = machines.filter(({ state }) => state === 'running').length;
    await Promise.all(machines.map(({ id }) => sandbar.machines.destroy(id)));
    const failed = result.find((create) => create.status === 'rejected');
    if (failed) throw new Error(`of ${count} creates at once one failed: ${failed.reason}`);
    if (running !== count) throw new Error(`of ${count} machines created at once ${running} run`);
  });
  const name = `${count} creates at once, pool of ${sizes.pool}`;
  const bounds = [{ of: 'max' as const, atMost: boundMs }];
  report({ what: `${name}: all running`, unit: 'ms', values: all, bounds, references });
  report({ what: `${name}: each`, unit: 'ms', values: each, references });
}
