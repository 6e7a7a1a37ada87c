// Kills the host agent and the control plane while jobs run. Machines must go on, every byte of output must arrive
// exactly once, and the service must answer again within seconds.
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from '@sandbar/sdk/client.ts';
import type { ModeService } from '../bench-service.ts';
import { type Context, repeat } from '../context.ts';
import { qemuPids, readPid, startOf } from '../processes.ts';

/**
 * Each job prints `BATCHES` batches of `BATCH` lines, one batch per second, so that it still runs at the second kill.
 */
const BATCHES = 40;
const BATCH = 250;
const LINES = BATCHES * BATCH;
const COMMAND = `i=0; while [ $i -lt ${LINES} ]; do echo "line $i"; i=$((i+1)); [ $((i%${BATCH})) -ne 0 ] || sleep 1; done; echo end`;
const EXPECTED = Buffer.from(`${Array.from({ length: LINES }, (_, at) => `line ${at}\n`).join('')}end\n`);
/** The processes are killed each time when every job has printed this many more bytes. */
const BYTES_BETWEEN = 4 * BATCH * 10;
const BACK_BOUND_MS = 5000;
const BACK_GIVE_UP_MS = 120_000;
const RETRY_MS = 10;

type Job = { machineId: string; jobId: string };

export async function benchKill(service: ModeService, context: Context): Promise<void> {
  const { sandbar, paths } = service;
  const { sizes, report, note } = context;
  const created = Array.from({ length: sizes.killed }, () => sandbar.machines.create());
  const ids = (await Promise.all(created)).map(({ id }) => id);
  const processes = describeQemus(paths.runMachines, ids);
  const jobs = await Promise.all(
    ids.map(async (machineId): Promise<Job> => {
      return { machineId, jobId: (await sandbar.execs.start(machineId, { command: COMMAND })).id };
    }),
  );

  const [answers, first, all] = [[] as number[], [] as number[], [] as number[]];
  await repeat(context, sizes.kills, async (round) => {
    for (const job of jobs) await waitForOutput(sandbar, job, (round + 1) * BYTES_BETWEEN);
    const began = killBoth(service);
    const since = () => performance.now() - began;
    const answered = retry(() => sandbar.machines.list()).then(() => answers.push(since()));
    const accepted = ids.map((id) => retry(() => sandbar.execs.start(id, { command: 'true' })).then(since));
    const times = await Promise.all(accepted);
    await answered;
    first.push(Math.min(...times));
    all.push(Math.max(...times));
  });

  const damages = (await Promise.all(jobs.map((job) => describeDamage(sandbar, job)))).filter(Boolean);
  const states = await Promise.all(ids.map((id) => sandbar.machines.get(id)));
  const after = describeQemus(paths.runMachines, ids);
  const changed = ids.filter((id, at) => states[at]?.state !== 'running' || after.get(id) !== processes.get(id));
  await Promise.all(ids.map((id) => sandbar.machines.destroy(id)));

  const name = `kill -9 of agent and control plane under ${sizes.killed} machines`;
  const [unit, none] = ['ms' as const, [{ of: 'max' as const, atMost: 0 }]];
  const bounds = [{ of: 'max' as const, atMost: BACK_BOUND_MS }];
  report({ what: `${name}: API answers`, unit, values: answers, bounds });
  report({ what: `${name}: first exec accepted`, unit, values: first, bounds });
  report({ what: `${name}: exec accepted on every machine`, unit, values: all, bounds });
  report({ what: `${name}: machines that did not run on`, unit: '', values: [changed.length], bounds: none });
  report({ what: `${name}: jobs with bytes lost or doubled`, unit: '', values: [damages.length], bounds: none });
  for (const damage of damages.slice(0, 5)) note(`${name}: ${damage}`);
}

/** Kills the host agent and the control plane. Returns the time of the kill in ms of `performance.now()`. */
function killBoth({ paths }: ModeService): number {
  const pids = (['host-agent', 'control-plane'] as const).map((name) => readPid(paths.pidFile(name)));
  if (pids.includes(undefined)) throw new Error('there is no pid file to kill by');
  const began = performance.now();
  for (const pid of pids) process.kill(pid ?? 0, 'SIGKILL');
  return began;
}

/** Repeats `work` until it succeeds, because requests fail in many ways while the service restarts. */
async function retry<T>(work: () => Promise<T>): Promise<T> {
  for (const until = performance.now() + BACK_GIVE_UP_MS; ; await delay(RETRY_MS)) {
    try {
      return await work();
    } catch (error) {
      if (performance.now() > until) throw error;
    }
  }
}

async function waitForOutput(sandbar: Client, { machineId, jobId }: Job, bytes: number): Promise<void> {
  for (;;) {
    const job = await sandbar.execs.get(machineId, jobId);
    if (job.stdout_bytes >= bytes) return;
    if (job.status !== 'running') throw new Error(`a job of machine ${machineId} ended as ${job.status} too early`);
    await delay(100);
  }
}

/** Waits for the end of the job and compares its output with `EXPECTED`. Returns the difference, or undefined. */
async function describeDamage(sandbar: Client, { machineId, jobId }: Job): Promise<string | undefined> {
  const { status, exit_code: exitCode } = await sandbar.execs.wait(machineId, jobId);
  if (status !== 'exited' || exitCode !== 0) return `a job ended as ${status} with ${exitCode}`;
  const pages: Buffer[] = [];
  for (let offset = 0, eof = false; !eof; ) {
    const page = await sandbar.execs.output(machineId, jobId, { offset, limit: 1024 * 1024, wait_ms: 1000 });
    pages.push(Buffer.from(page.data, 'base64'));
    offset = page.next_offset;
    eof = page.eof;
  }
  const output = Buffer.concat(pages);
  if (output.equals(EXPECTED)) return undefined;
  const at = output.findIndex((byte, index) => byte !== EXPECTED[index]);
  return `output of ${output.length} instead of ${EXPECTED.length} bytes differs from byte ${at < 0 ? output.length : at}`;
}

/** Process id and start time of each machine's QEMU. If both are equal later, it is still the same process. */
function describeQemus(folder: string, ids: readonly string[]): Map<string, string> {
  const pids = qemuPids(folder);
  return new Map(ids.map((id) => [id, `${pids.get(id)} since ${startOf(pids.get(id) ?? 0)}`]));
}
