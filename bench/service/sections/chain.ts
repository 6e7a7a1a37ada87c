// Compares random reads in two guests: the blocks of the file lie in one disk layer, or spread over eight layers.
import type { Client } from '@sandbar/sdk/client.ts';
import type { ModeService } from '../bench-service.ts';
import { type Context, repeat } from '../context.ts';
import { pythonOutput, startPython } from './python.ts';

const LAYERS = 8;
const FILE_BLOCKS = 16_384;
const READS = 2000;

/** Arguments: LAYERS LAYER BLOCKS. Writes each block whose number modulo LAYERS is LAYER. */
const WRITE = `
import os, sys
of, rest, blocks = map(int, sys.argv[1:])
file = os.open('/root/blocks', os.O_WRONLY | os.O_CREAT, 0o600)
for block in range(rest, blocks, of):
    os.pwrite(file, os.urandom(4096), block * 4096)
os.fsync(file)
`;
/**
 * Arguments: READS BLOCKS. Reads random blocks with O_DIRECT, past the guest's cache, and prints the seconds it took.
 */
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
  // The read rate must stay at 80 % or more, so the time may be at most 100 / 0.8 = 125 %.
  const bounds = [{ of: 'median' as const, atMost: 125 }];
  report({ what: 'time of the second to the first of these two', unit: '%', values: times.ratio, bounds });
}

/**
 * Creates a machine and writes its file in `layers` parts, with a snapshot after each, so that each part has its own
 * layer.
 */
async function machineOf(sandbar: Client, layers: number): Promise<string> {
  const { id } = await sandbar.machines.create();
  for (let layer = 0; layer < layers; layer++) {
    const job = await startPython(sandbar, id, WRITE, [layers, layer, FILE_BLOCKS].map(String));
    await pythonOutput(sandbar, id, job.id);
    await sandbar.snapshots.create(id);
  }
  return id;
}

async function readMs(sandbar: Client, machineId: string): Promise<number> {
  const job = await startPython(sandbar, machineId, READ, [READS, FILE_BLOCKS].map(String));
  return 1000 * Number(await pythonOutput(sandbar, machineId, job.id));
}
