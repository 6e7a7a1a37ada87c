// The control plane that a benchmark measures: a process of its own on a new database of a real PostgreSQL, with a fake
// host in a third process.
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BillingMode } from '@sandbar/contract/account.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { MEMORY_SETTINGS, SMALL_HEAP } from '@sandbar/service/supervise/definitions.ts';
import { callAdmin } from '../../packages/control-plane/tests/support/admin.ts';
import { freePort } from '../../packages/control-plane/tests/support/free-ports.ts';

const require = createRequire(new URL('../../packages/control-plane/package.json', import.meta.url));
const pg: typeof import('pg') = require('pg');

export type Tenant = { sandbar: Client; key: string; email: string; password: string };

export type Target = {
  /** The port of the API. */
  port: number;
  /** The process of the fake host, from bench/attacks/host.ts. */
  host: ChildProcess;
  /** Starts the control plane, or starts it again. Returns its process id. */
  start(): Promise<number>;
  /** Makes an account without the limits of its tier, unmetered by default. A prepaid account gets 1,000 EUR. */
  newAccount(name: string, billing?: BillingMode): Promise<Tenant>;
  /** Starts a program of the benchmark that ends with the target. `file` is relative to the folder `bench`. */
  forked(file: string): ChildProcess;
  /** Ends all processes and removes the database. */
  close(): Promise<void>;
};

/**
 * Makes the database (`SANDBAR_DATABASE_URL` names the server) and starts the fake host. `nodeOptions` are options of
 * Node for the control plane, in addition to those of the service; `env` is added to its environment.
 */
export async function prepareTarget(
  database: string,
  nodeOptions: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<Target> {
  const serverUrl = process.env.SANDBAR_DATABASE_URL;
  if (!serverUrl) throw new Error('SANDBAR_DATABASE_URL names the PostgreSQL to use.');
  const databaseUrl = new URL(serverUrl);
  databaseUrl.pathname = `/${database}`;
  const home = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
  const paths = homePaths(home);
  const children: ChildProcess[] = [];
  const port = await freePort();
  let controlPlane: ChildProcess | undefined;

  const onServer = async (statement: string) => {
    const client = new pg.Client({ connectionString: serverUrl });
    await client.connect();
    await client.query(statement);
    await client.end();
  };
  const forked = (file: string) => {
    const child = fork(new URL(`../${file}`, import.meta.url), {
      env: { ...process.env, BENCH_HOST_SOCKET: paths.hostAgentSocket },
    });
    children.push(child);
    return child;
  };

  const stop = async () => {
    if (!controlPlane) return;
    controlPlane.kill('SIGTERM');
    await once(controlPlane, 'exit');
  };
  /** Starts the control plane as its supervisor does, but as the current user and without hiding files from it. */
  const start = async () => {
    await stop();
    const main = new URL('../../packages/control-plane/src/main.ts', import.meta.url).pathname;
    const options = ['--disable-warning=ExperimentalWarning', '--max-semi-space-size=2', SMALL_HEAP, ...nodeOptions];
    controlPlane = spawn(process.execPath, [...options, main], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: {
        PATH: process.env.PATH ?? '',
        ...MEMORY_SETTINGS,
        SANDBAR_HOME: home,
        SANDBAR_LISTEN: `127.0.0.1:${port}`,
        SANDBAR_METRICS_LISTEN: `127.0.0.1:${await freePort()}`,
        SANDBAR_DATABASE_URL: databaseUrl.href,
        SANDBAR_SECRET: 'a secret of the benchmark that is long enough',
        SANDBAR_RATE_EXEC: '100000/100000',
        SANDBAR_RATE_MUTATING: '100000/100000',
        NODE_COMPILE_CACHE: join(home, 'compile-cache'),
        ...env,
      },
    });
    children.push(controlPlane);
    const [message] = (await Promise.race([once(controlPlane, 'message'), once(controlPlane, 'exit')])) as unknown[];
    if (typeof message !== 'object') throw new Error('The control plane did not start.');
    return controlPlane.pid ?? 0;
  };

  mkdirSync(paths.run, { recursive: true });
  await onServer(`drop database if exists ${database} with (force)`);
  await onServer(`create database ${database}`);
  const host = forked('attacks/host.ts');
  await once(host, 'message');
  return {
    port,
    host,
    start,
    forked,
    newAccount: async (name, billing = 'unmetered') => {
      const credit = billing === 'prepaid' ? { credit_eur: '1000' } : {};
      const body = { email: `${name}@example.test`, tier: 'enterprise', billing_mode: billing, ...credit };
      const { json } = await callAdmin(paths.adminSocket, '/admin/accounts', body);
      const key = String(json.api_key);
      const sandbar = new Client({ baseUrl: `http://127.0.0.1:${port}`, apiKey: key });
      return { sandbar, key, email: body.email, password: String(json.password) };
    },
    close: async () => {
      // Node writes profiles only when the process ends by itself.
      if (nodeOptions.length > 0) await stop();
      for (const child of children) child.kill('SIGKILL');
      await Promise.all(children.map((child) => child.exitCode ?? child.signalCode ?? once(child, 'exit')));
      await onServer(`drop database if exists ${database} with (force)`);
      rmSync(home, { recursive: true, force: true });
    },
  };
}
