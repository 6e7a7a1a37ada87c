// Random reads in a guest whose file lies in one layer, and in eight.
import type { Sandbar } from '@sandbar/sdk/client.ts';
import type { ModeService } from '../bench-service.ts';
import { type Context, repeat } from '../context.ts';
import { pythonOutput, startPython } from './python.ts';

const LAYERS = 8;
const FILE_BLOCKS = 16_384;
const READS = 2000;

/** Writes every block of the file whose number has the given rest. */
const WRITE = `
import os, sys
of, rest, blocks = map(int, sys.argv[1:])
file = os.open('/root/blocks', os.O_WRONLY | os.O_CREAT, 0o600)
for block in range(rest, blocks, of):
    os.pwrite(file, os.urandom(4096), block * 4096)
os.fsync(file)
`;
/** Reads blocks at random past the guest's cache, and says how many seconds that took. */
const READ = `
import mmap, os, random, sys, time
reads, blocks = map(int, sys.argv[1:])
file = os.open('/root/blocks', os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
random.seed(7)
began = time.monotonic()
for _ in range(reads):
    os.preadv(file, [page], random.randrange(blocks) * 4096)
print(time.monotonic() - began)
`;

export async function benchChain({ sandbar }: ModeService, context: Context): Promise<void> {
  const { sizes, report } = context;
  const [one, eight] = [await machineOf(sandbar, 1), await machineOf(sandbar, LAYERS)];
  const times = { one: [] as number[], eight: [] as number[], ratio: [] as number[] };
  await repeat(context, sizes.samples, async () => {
    times.one.push(await readMs(sandbar, one));
    times.eight.push(await readMs(sandbar, eight));
    times.ratio.push((100 * (times.eight.at(-1) ?? 0)) / (times.one.at(-1) ?? 1));
  });
  for (const id of [one, eight]) await sandbar.machines.destroy(id, { deleteSnapshots: true });
  report({ what: `${READS} random reads of 4k in a guest, 1 layer`, unit: 'ms', values: times.one });
  report({ what: `the same, ${LAYERS} layers`, unit: 'ms', values: times.eight });
  // At least 0.8 of the rate is at most 1.25 of the time.
  const bounds = [{ of: 'median' as const, atMost: 125 }];
  report({ what: 'time of the second to the first of these two', unit: '%', values: times.ratio, bounds });
}

/** A machine whose file lies in `layers` layers, a part of it in each. */
async function machineOf(sandbar: Sandbar, layers: number): Promise<string> {
  const { id } = await sandbar.machines.create();
  for (let layer = 0; layer < layers; layer++) {
    const job = await startPython(sandbar, id, WRITE, [layers, layer, FILE_BLOCKS].map(String));
    await pythonOutput(sandbar, id, job.id);
    await sandbar.snapshots.create(id);
  }
  return id;
}

async function readMs(sandbar: Sandbar, machineId: string): Promise<number> {
  const job = await startPython(sandbar, machineId, READ, [READS, FILE_BLOCKS].map(String));
  return 1000 * Number(await pythonOutput(sandbar, machineId, job.id));
}
