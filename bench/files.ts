// Measures files of a machine through the SDK: the rate of a large file in both directions with the memory of every
// process on the way, many small files at once, a long list, and single operations.
//   sudo node_modules/node/bin/node bench/files.ts
// Starts a service of its own. Optional variables: BENCH_MB (size of the large file, default 1024), BENCH_ROUNDS
// (default 3, of the large file; other figures take more).
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import type { homePaths } from '@sandbar/contract/home.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import type { Files } from '@sandbar/sdk/files.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { BenchService } from './service/bench-service.ts';
import { readPid, residentMb } from './service/processes.ts';
import { measure, summarize } from './statistics.ts';

const MIB = 1024 * 1024;
const MEGABYTES = Number(process.env.BENCH_MB ?? 1024);
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 3);
const SMALL_FILES = 100;
const SMALL = Buffer.alloc(1024, 's');
const LISTED = 10_000;
const SAMPLE_MS = 50;
const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

/** One piece of the large file, which consists of copies of it. */
const PIECE = Buffer.alloc(MIB);
for (let at = 0; at < MIB; at += 4) PIECE.writeUInt32LE((at * 2_654_435_761) >>> 0, at);

async function* largeFile(): AsyncGenerator<Uint8Array> {
  for (let piece = 0; piece < MEGABYTES; piece++) yield PIECE;
}

async function main(): Promise<void> {
  const bench = await BenchService.prepare(0, progress, stop);
  try {
    const { sandbar, paths } = await bench.in('cold');
    const { id } = await sandbar.machines.create({ memory_mb: 1024, rootfs_size_gb: 10 });
    const files = sandbar.files(id);
    await measureSmall(files);
    await measureList(sandbar, id, files);
    await measureLarge(sandbar, id, files, paths);
  } finally {
    await bench.stop(hurry);
    for (const leak of await bench.remove()) progress.say(`left behind: ${leak}`);
  }
}

async function measureSmall(files: Files): Promise<void> {
  const one = await measure(50, () => files.write('/root/one', SMALL));
  progress.say(`write of 1 KiB, ms: ${summarize(one)}`);
  progress.say(`read of 1 KiB, ms: ${summarize(await measure(50, () => files.read('/root/one')))}`);
  progress.say(`stat, ms: ${summarize(await measure(50, () => files.stat('/root/one')))}`);
  const names = Array.from({ length: SMALL_FILES }, (_, index) => index);
  const many = await measure(10, (round) =>
    Promise.all(names.map((name) => files.write(`/root/many-${round}/${name}`, SMALL))),
  );
  progress.say(`${SMALL_FILES} files of 1 KiB written at once, ms: ${summarize(many)}`);
}

async function measureList(sandbar: Client, id: string, files: Files): Promise<void> {
  await run(sandbar, id, `mkdir /root/wide && cd /root/wide && seq 1 ${LISTED} | xargs touch`);
  const lists = await measure(5, async () => {
    const { length } = await files.list('/root/wide');
    if (length !== LISTED) throw new Error(`${length} entries instead of ${LISTED}`);
  });
  progress.say(`list of ${LISTED} entries, ms: ${summarize(lists)}`);
}

async function measureLarge(
  sandbar: Client,
  id: string,
  files: Files,
  paths: ReturnType<typeof homePaths>,
): Promise<void> {
  const expected = createHash('sha256');
  for (let piece = 0; piece < MEGABYTES; piece++) expected.update(PIECE);
  const digest = expected.digest('hex');
  await files.write('/root/warm', Buffer.concat(Array(16).fill(PIECE)));
  await files.read('/root/warm');
  const guestBefore = await guestMemory(sandbar, id);
  const memory = new MemoryWatch(paths);
  const rate = (ms: number) => (MEGABYTES * MIB) / 1e6 / (ms / 1000);
  for (let round = 1; round <= ROUNDS; round++) {
    const [up = 0] = await measure(1, () => files.write('/root/large', largeFile));
    progress.say(`${round}: ${MEGABYTES} MiB up: ${rate(up).toFixed(1)} MB/s; ${memory.describe()}`);
    const hash = createHash('sha256');
    const [down = 0] = await measure(1, async () => {
      for await (const chunk of files.stream('/root/large')) hash.update(chunk);
    });
    const verdict = hash.digest('hex') === digest ? 'same SHA-256' : 'OTHER SHA-256';
    progress.say(`${round}: ${MEGABYTES} MiB down: ${rate(down).toFixed(1)} MB/s, ${verdict}; ${memory.describe()}`);
  }
  memory.stop();
  progress.say(`guest agent: ${guestBefore} before, ${await guestMemory(sandbar, id)} after`);
}

/** Samples the resident memory of the processes of the service. */
class MemoryWatch {
  readonly #pids: [string, number][];
  readonly #before: number[];
  #most: number[];
  readonly #timer: NodeJS.Timeout;

  constructor(paths: ReturnType<typeof homePaths>) {
    const agent = readPid(paths.pidFile('host-agent')) ?? 0;
    this.#pids = [
      ['control-plane', readPid(paths.pidFile('control-plane')) ?? 0],
      ['host-agent', agent],
    ];
    // Programs that confine the guest gateway are above it in the tree of processes, with its arguments in theirs.
    const gateway = descendantsOf(agent).findLast((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('gateway'),
    );
    if (gateway !== undefined) this.#pids.push(['gateway', gateway]);
    this.#before = this.#sample();
    this.#most = this.#before;
    this.#timer = setInterval(() => {
      this.#most = this.#sample().map((now, index) => Math.max(now, this.#most[index] ?? 0));
    }, SAMPLE_MS);
  }

  #sample(): number[] {
    return this.#pids.map(([, pid]) => residentMb(pid) ?? 0);
  }

  /** Returns text such as `control-plane 120 MB, +20`: the memory before the first transfer, and its largest growth. */
  describe(): string {
    return this.#pids
      .map(([name], index) => {
        const before = this.#before[index] ?? 0;
        return `${name} ${before.toFixed(0)} MB, +${((this.#most[index] ?? 0) - before).toFixed(0)}`;
      })
      .join('; ');
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** The children of a process, each followed by its own. */
function descendantsOf(parent: number): number[] {
  const threads = readdirSync(`/proc/${parent}/task`);
  const children = threads.flatMap((thread) =>
    readFileSync(`/proc/${parent}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
  return children.flatMap((pid) => [pid, ...descendantsOf(pid)]);
}

/** Resident memory of the guest agent, now and the most so far. */
async function guestMemory(sandbar: Client, id: string): Promise<string> {
  return (await run(sandbar, id, "grep -E 'VmHWM|VmRSS' /proc/1/status")).replace(/\s+/g, ' ').trim();
}

async function run(sandbar: Client, id: string, command: string): Promise<string> {
  const { job, stdout } = await sandbar.execs.run(id, { command });
  if (job.exit_code !== 0) throw new Error(`${command}: exit code ${job.exit_code}`);
  return Buffer.from(stdout).toString();
}

await main();
