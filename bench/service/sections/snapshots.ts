// Times disk snapshots: how long a snapshot takes, how long the guest cannot write meanwhile, and how long a create
// from a snapshot takes.
import type { Client } from '@sandbar/sdk/client.ts';
import type { Mode, ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import { waitForFullPool } from '../host-info.ts';
import { noTimes } from '../references.ts';
import { pythonOutput, startPython } from './python.ts';

/** Writes every 2 ms for two seconds, then prints the longest time between two writes in ms. */
const PAUSE_PROBE = `
import os, time
file = os.open('/root/probe', os.O_WRONLY | os.O_CREAT, 0o600)
print('go', flush=True)
last = time.monotonic()
until = last + 2
longest = 0
while last < until:
    os.pwrite(file, b'x', 0)
    now = time.monotonic()
    longest = max(longest, now - last)
    last = now
    time.sleep(0.002)
print(longest * 1000)
`;
/** Writes 200 MB to the disk, so that the snapshot is not one of an empty disk. */
const FILL = 'head -c 200000000 /dev/urandom > /root/filling && sync';

export async function benchSnapshots({ sandbar }: ModeService, context: Context): Promise<void> {
  const { sizes, references: yardsticks, report } = context;
  const references = noTimes();
  const times = { running: [] as number[], stopped: [] as number[], pause: [] as number[], still: [] as number[] };
  const { id } = await sandbar.machines.create();
  await run(sandbar, id, FILL);
  await repeat(context, sizes.samples, async () => {
    await yardsticks.sample(references);
    await keepConnected(sandbar);
    times.still.push(await longestPause(sandbar, id, async () => {}));
    const taking = async () => {
      const { ms, result } = await timed(() => sandbar.snapshots.create(id));
      times.running.push(ms);
      await sandbar.snapshots.delete(result.id);
    };
    times.pause.push(await longestPause(sandbar, id, taking));
  });
  await sandbar.machines.stop(id);
  await repeat(context, sizes.samples, async () => {
    const { ms, result } = await timed(() => sandbar.snapshots.create(id));
    times.stopped.push(ms);
    await sandbar.snapshots.delete(result.id);
  });
  await sandbar.machines.destroy(id);

  const unit = 'ms' as const;
  const bounds = [{ of: 'median' as const, atMost: 300 }];
  report({ what: 'disk snapshot of a running machine that writes', unit, values: times.running, bounds, references });
  report({ what: 'disk snapshot of a stopped machine', unit, values: times.stopped, references });
  const pauseBounds = [{ of: 'max' as const, atMost: 100 }];
  report({
    what: 'longest time between two writes in the guest, a snapshot in it',
    unit,
    values: times.pause,
    bounds: pauseBounds,
  });
  report({ what: 'the same without a snapshot', unit, values: times.still });
}

/**
 * Compares creates from a snapshot with creates from the image, alternately, in percent. Reports the first create from
 * the snapshot separately, because there is no template for it yet.
 */
export async function benchFromSnapshot({ mode, sandbar, paths }: ModeService, context: Context): Promise<void> {
  const { sizes, report } = context;
  const source = await sandbar.machines.create();
  await run(sandbar, source.id, 'echo kept > /root/kept && sync');
  const snapshot = await sandbar.snapshots.create(source.id);
  const create = { snapshot_id: snapshot.id };
  const first = await timed(() => sandbar.machines.create(create));
  await sandbar.machines.destroy(first.result.id);
  if (mode !== 'cold') await untilCloned(sandbar, create, first.ms);

  const times = { image: [] as number[], snapshot: [] as number[], ratio: [] as number[] };
  await repeat(context, sizes.samples, async () => {
    for (const [kind, spec] of [['image', {}] as const, ['snapshot', create] as const]) {
      if (mode === 'pool') await waitForFullPool(paths.hostAgentSocket);
      await keepConnected(sandbar);
      const { ms, result } = await timed(() => sandbar.machines.create(spec));
      times[kind].push(ms);
      await sandbar.machines.destroy(result.id);
    }
    times.ratio.push((100 * (times.snapshot.at(-1) ?? 0)) / (times.image.at(-1) ?? 1));
  });
  await sandbar.snapshots.delete(snapshot.id);
  await sandbar.machines.destroy(source.id);

  const name = MODE_NAMES[mode];
  const unit = 'ms' as const;
  report({ what: `first create from a disk snapshot, ${name}`, unit, values: [first.ms] });
  report({ what: `create from the image, ${name}`, unit, values: times.image });
  report({ what: `create from a disk snapshot, ${name}`, unit, values: times.snapshot });
  const bounds = [{ of: 'median' as const, atMost: 130 }];
  report({ what: `the second to the first of these two, ${name}`, unit: '%', values: times.ratio, bounds });
}

const MODE_NAMES: Record<Mode, string> = { pool: 'pool warm', template: 'no pool, template there', cold: 'cold' };
const CREATES_UNTIL_CLONED = 10;

/** Creates machines until a create is much faster than the first one, which means that the snapshot has a template. */
async function untilCloned(sandbar: Client, create: { snapshot_id: string }, firstMs: number): Promise<void> {
  for (let creates = 0; creates < CREATES_UNTIL_CLONED; creates++) {
    const { ms, result } = await timed(() => sandbar.machines.create(create));
    await sandbar.machines.destroy(result.id);
    if (ms * 2 < firstMs) return;
  }
}

/** Runs `work` while a program in the guest writes. Returns the longest time between two writes, in ms. */
async function longestPause(sandbar: Client, machineId: string, work: () => Promise<void>): Promise<number> {
  const job = await startPython(sandbar, machineId, PAUSE_PROBE);
  await sandbar.execs.output(machineId, job.id, { wait_ms: 10_000 });
  await work();
  return Number((await pythonOutput(sandbar, machineId, job.id)).split('\n').at(-2));
}

async function run(sandbar: Client, machineId: string, command: string): Promise<void> {
  const job = await sandbar.execs.start(machineId, { command });
  const ended = await sandbar.execs.wait(machineId, job.id);
  if (ended.exit_code !== 0) throw new Error(`"${command}" ended as ${ended.status} with ${ended.exit_code}`);
}
