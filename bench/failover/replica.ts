// A replica of the control plane as a process of its own. All replicas use the same fake host in the benchmark's
// process.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { freePort } from '../../packages/control-plane/tests/support/free-ports.ts';

export type Replica = { baseUrl: string; adminSocket: string; process: ChildProcess };

export async function startReplica(folder: string, name: string, databaseUrl: string, host: string): Promise<Replica> {
  const home = join(folder, name);
  const paths = homePaths(home);
  mkdirSync(dirname(paths.hostAgentSocket), { recursive: true });
  mkdirSync(paths.run, { recursive: true });
  symlinkSync(host, paths.hostAgentSocket);
  const port = await freePort();
  const main = new URL('../../packages/control-plane/src/main.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', main], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: {
      PATH: process.env.PATH ?? '',
      SANDBAR_HOME: home,
      SANDBAR_LISTEN: `127.0.0.1:${port}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${await freePort()}`,
      SANDBAR_DATABASE_URL: databaseUrl,
      SANDBAR_SECRET: 'a secret of the benchmark that is long enough',
      SANDBAR_RATE_EXEC: '100000/100000',
      SANDBAR_RATE_MUTATING: '100000/100000',
      SANDBAR_VCPU_OVERCOMMIT: '1000',
    },
  });
  const [message] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as unknown[];
  if ((message as { type?: string } | null)?.type !== 'ready') {
    throw new Error(`The control plane did not start: ${JSON.stringify(message)}`);
  }
  return { baseUrl: `http://127.0.0.1:${port}`, adminSocket: paths.adminSocket, process: child };
}
