// Times memory snapshots of a machine with 1 GiB of memory, 200 MB of it written by a process, and creates from them.
import type { ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import { noTimes } from '../references.ts';
import { startPython } from './python.ts';

const TOUCH = `
import os, time
block = os.urandom(1000000)
memory = bytearray(200 * len(block))
for at in range(0, len(memory), len(block)):
    memory[at:at + len(block)] = block
print('touched', flush=True)
time.sleep(100000)
`;

export async function benchMemory({ sandbar }: ModeService, context: Context): Promise<void> {
  const { sizes, references: yardsticks, report } = context;
  const references = noTimes();
  const times = { take: [] as number[], create: [] as number[], next: [] as number[] };
  const stored: number[] = [];
  const { id } = await sandbar.machines.create();
  const job = await startPython(sandbar, id, TOUCH);
  await sandbar.execs.output(id, job.id, { wait_ms: 30_000 });
  await repeat(context, sizes.samples, async () => {
    await yardsticks.sample(references);
    await keepConnected(sandbar);
    const { ms, result: snapshot } = await timed(() => sandbar.snapshots.create(id, { memory: true }));
    times.take.push(ms);
    stored.push(snapshot.stored_bytes / 1024 ** 2);
    for (const values of [times.create, times.next]) {
      await keepConnected(sandbar);
      const made = await timed(() => sandbar.machines.create({ snapshot_id: snapshot.id }));
      values.push(made.ms);
      await sandbar.machines.destroy(made.result.id);
    }
    await sandbar.snapshots.delete(snapshot.id);
  });
  await sandbar.machines.destroy(id);
  const unit = 'ms' as const;
  const bound = (atMost: number) => [{ of: 'median' as const, atMost }];
  const take = 'memory snapshot of a machine of 1 GiB that has touched 200 MB';
  report({ what: take, unit, values: times.take, bounds: bound(700), references });
  report({ what: 'machine from it, the first', unit, values: times.create, bounds: bound(500), references });
  report({ what: 'machine from it, the second', unit, values: times.next, bounds: bound(500), references });
  report({ what: 'stored of it', unit: 'MB', values: stored });
}
