// Starts replicas of the control plane for a benchmark, with the options of Node and malloc that the service starts
// them with: they decide how much memory a replica takes.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { COLLECTABLE, MEMORY_SETTINGS, nodeArgs, SMALL_HEAP } from '@sandbar/service/supervise/definitions.ts';

const checkout = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');
const folder = mkdtempSync(join(tmpdir(), 'sandbar-bench-replicas-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

/** Whether to start replicas as plain `node` does, without the options of the service, for a comparison. */
const isPlain = process.env.BENCH_PLAIN === '1';
/** More options of Node for replicas, such as `--cpu-prof --cpu-prof-dir=/tmp/profiles`. */
const more = (process.env.BENCH_NODE_OPTIONS ?? '').split(' ').filter(Boolean);

export const SECRET = 'a secret of the benchmark that is long enough';

/** A replica. `ready`: the first message of its process. */
export type Replica<Ready> = { process: ChildProcess; pid: number; ready: Ready; stop(): Promise<void> };

let started = 0;

/**
 * Starts a program that is a replica and waits for its first message. `main`: a program of the benchmark; by default
 * the control plane itself.
 */
export async function startReplica<Ready>(env: NodeJS.ProcessEnv, main?: URL): Promise<Replica<Ready>> {
  const args = nodeArgs(checkout, 'control-plane', SMALL_HEAP, COLLECTABLE);
  const controlPlane = args.pop() ?? '';
  const child = fork(main ?? controlPlane, {
    execArgv: [...(isPlain ? ['--disable-warning=ExperimentalWarning'] : args), ...more],
    env: {
      ...{ PATH: process.env.PATH, NODE_COMPILE_CACHE: isPlain ? undefined : join(folder, 'compile-cache') },
      ...(isPlain ? {} : MEMORY_SETTINGS),
      ...{ SANDBAR_HOME: join(folder, `home-${started++}`), SANDBAR_SECRET: SECRET },
      ...{ SANDBAR_LISTEN: '127.0.0.1:0', SANDBAR_METRICS_LISTEN: '127.0.0.1:0' },
      ...env,
    },
    // The log is formatted and written, as in the service.
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const [ready] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as [Ready | number | null];
  if (typeof ready !== 'object' || ready === null) throw new Error('A replica did not start.');
  const stop = async () => {
    child.kill('SIGTERM');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  };
  return { process: child, pid: child.pid ?? 0, ready, stop };
}
