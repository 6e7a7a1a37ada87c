// Measures a service that is already running: create, start, jobs, output, and idle machines. Prints one line per
// figure.
//   node_modules/node/bin/node bench/core.ts        (after `npm start` in another terminal; SANDBAR_HOME as there)
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { defaultHome } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { anonymousMb, cpuSeconds, readPid, residentMb } from './service/processes.ts';
import { measure, percentile, summarize } from './statistics.ts';

const CREATES = Number(process.env.BENCH_CREATES ?? 10);
const STARTS = Number(process.env.BENCH_STARTS ?? 5);
const EXECS = 50;
const OUTPUT_BYTES = 100_000_000;
const IDLE_SECONDS = 10;

const sandbar = new Client();
const home = defaultHome(process.env, process.getuid?.() === 0);

async function main(): Promise<void> {
  console.log(
    `machine: ${cpus().length} x ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}`,
  );
  const unit = percentile(await measure(5, hash256Mb), 0.5);
  console.log(`unit: SHA-256 of 256 MiB on one core, median ${unit.toFixed(0)} ms`);
  const report = (what: string, times: number[]) =>
    console.log(`${what}, ms: ${summarize(times)}; ${(percentile(times, 0.5) / unit).toFixed(3)} units`);

  const machines: Machine[] = [];
  try {
    report(
      'create (POST to 201)',
      await measure(CREATES, async () => void machines.push(await sandbar.machines.create())),
    );
    const [machine, ...rest] = machines;
    if (!machine) return;
    console.log(`isolation: ${machine.isolation}`);
    await Promise.all(rest.map(({ id }) => sandbar.machines.destroy(id)));
    await benchIdle(machine);
    await benchStart(machine, report);
    await runJob(machine, 'true');
    report('true as a job (POST to ended)', await measure(EXECS, () => runJob(machine, 'true')));
    await benchOutput(machine);
    for (const name of ['control-plane', 'host-agent']) {
      const pid = readPid(join(home, 'run', `${name}.pid`));
      console.log(`${name}, resident MB: ${pid && residentMb(pid)?.toFixed(0)}`);
    }
  } finally {
    await Promise.all(machines.map(({ id }) => sandbar.machines.destroy(id).catch(() => {})));
  }
}

/**
 * Takes a time that depends only on the speed of this computer, so that results of different computers can be compared.
 */
async function hash256Mb(): Promise<void> {
  const block = randomBytes(1024 * 1024);
  const hash = createHash('sha256');
  for (let done = 0; done < 256; done++) hash.update(block);
  hash.digest();
}

async function benchStart(machine: Machine, report: (what: string, times: number[]) => void): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round < STARTS; round++) {
    await sandbar.machines.stop(machine.id);
    times.push(...(await measure(1, () => sandbar.machines.start(machine.id))));
  }
  report('start of a stopped machine', times);
}

async function runJob(machine: Machine, command: string): Promise<void> {
  const job = await sandbar.execs.start(machine.id, { command });
  const ended = await sandbar.execs.wait(machine.id, job.id);
  if (ended.exit_code !== 0) throw new Error(`${command} ended with ${ended.exit_code}`);
}

/** Measures how fast the paged API returns 100 MB of output. The job has ended before the measurement starts. */
async function benchOutput(machine: Machine): Promise<void> {
  const job = await sandbar.execs.start(machine.id, {
    command: `head -c ${OUTPUT_BYTES} /dev/urandom > /tmp/random; sha256sum < /tmp/random >&2; cat /tmp/random`,
  });
  await sandbar.execs.wait(machine.id, job.id);
  const hash = createHash('sha256');
  const start = performance.now();
  for (let offset = 0, eof = false; !eof; ) {
    const page = await sandbar.execs.output(machine.id, job.id, { offset, limit: 1024 * 1024, wait_ms: 1000 });
    hash.update(Buffer.from(page.data, 'base64'));
    offset = page.next_offset;
    eof = page.eof;
  }
  const seconds = (performance.now() - start) / 1000;
  const said = Buffer.from(
    (await sandbar.execs.output(machine.id, job.id, { stream: 'stderr' })).data,
    'base64',
  ).toString();
  const verdict = said.startsWith(hash.digest('hex')) ? 'same SHA-256' : 'ANOTHER SHA-256';
  console.log(`100 MB of output by pages: ${(OUTPUT_BYTES / 1e6 / seconds).toFixed(0)} MB/s, ${verdict}`);
}

async function benchIdle(machine: Machine): Promise<void> {
  const pid = Number(readFileSync(join(home, 'run/machines', machine.id, 'qemu.pid'), 'utf8'));
  await delay(3000);
  const before = cpuSeconds(pid);
  await delay(IDLE_SECONDS * 1000);
  const share = (cpuSeconds(pid) - before) / IDLE_SECONDS;
  console.log(`idle machine: ${(share * 100).toFixed(2)} % of a core, ${anonymousMb(pid).toFixed(0)} MB anonymous`);
}

await main();
