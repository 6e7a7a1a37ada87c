// Real PostgreSQL for tests: one server for each test process (or the one at SANDBAR_TEST_DATABASE_URL), and a new
// database for each test bed.
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { postgresOfPackage } from './postgres-versions.ts';

/** The user id of `nobody`. PostgreSQL refuses to run as root, and this user has no other files. */
const NOBODY = 65_534;

export type PostgresServer = {
  /** The URL of the server's `postgres` database. */
  url: string;
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Stops (SIGSTOP) or continues all processes of the server. */
  freeze(frozen: boolean): void;
  /** Ends all processes of the server with SIGKILL. */
  kill(): Promise<void>;
  /** The folder with the server's files. */
  data: string;
  port: string;
};

export type PostgresOptions = {
  /** The folder with the binaries. Without it: SANDBAR_TEST_POSTGRES, else those that the service brings. */
  native?: string;
  /** Settings such as `port=5433`, in addition to those of all tests. */
  settings?: readonly string[];
  /** The files of a stopped server, from which this one is copied. Without them, an empty server is made. */
  copyOf?: string;
  /** Called before the first start with the folder of the server's files. */
  prepare?: (data: string) => void;
};

function asUnprivileged(program: string, args: string[]): [string, string[]] {
  if (process.getuid?.() !== 0) return [program, args];
  return [
    'setpriv',
    [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', '--pdeathsig=QUIT', program, ...args],
  ];
}

/** Starts a separate server, for tests that stop or freeze it. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-pg-'));
  let native = options.native ?? process.env.SANDBAR_TEST_POSTGRES ?? postgresOfPackage();
  if (process.getuid?.() === 0) {
    // Copy the binaries, because the checkout may be in a folder that only root can read.
    execFileSync('cp', ['-a', native, join(home, 'native')]);
    native = join(home, 'native');
    chownSync(home, NOBODY, NOBODY);
  }
  const data = join(home, 'data');
  const env = { ...process.env, LC_ALL: 'C', TZ: 'UTC' };
  if (options.copyOf) {
    execFileSync('cp', ['-a', options.copyOf, data]);
  } else {
    const [initdb, initArgs] = asUnprivileged(join(native, 'bin', 'initdb'), [
      ...['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync', '--locale=C'],
    ]);
    execFileSync(initdb, initArgs, { env, stdio: 'pipe', cwd: '/' });
  }
  options.prepare?.(data);
  let child: ChildProcess | undefined;
  const port = options.settings?.find((setting) => setting.startsWith('port='))?.slice('port='.length) ?? '5432';
  const url = `postgres://postgres@localhost/postgres?host=${encodeURIComponent(home)}&port=${port}`;

  const start = async () => {
    const ours = ['listen_addresses=', 'fsync=off', 'max_connections=200', 'shared_buffers=32MB'];
    const settings = [...ours, ...(options.settings ?? [])];
    const [program, args] = asUnprivileged(join(native, 'bin', 'postgres'), [
      ...['-D', data, '-k', home],
      ...settings.flatMap((setting) => ['-c', setting]),
    ]);
    child = spawn(program, args, { env, stdio: 'ignore', cwd: '/' });
    // Do not let the server keep the test process alive. The server is stopped when the test process exits.
    child.unref();
    await until(() => canConnect(url), 'PostgreSQL answers');
  };
  const stop = async () => {
    const ending = child;
    if (!ending || ending.exitCode !== null) return;
    ending.ref();
    const exited = new Promise((resolve) => ending.once('exit', resolve));
    ending.kill('SIGQUIT');
    await exited;
  };
  const freeze = (frozen: boolean) => {
    for (const pid of processTree(child?.pid ?? 0)) signalIfAlive(pid, frozen ? 'SIGSTOP' : 'SIGCONT');
  };
  const kill = async () => {
    const ending = child;
    if (!ending || ending.exitCode !== null) return;
    ending.ref();
    const exited = new Promise((resolve) => ending.once('exit', resolve));
    for (const pid of processTree(ending.pid ?? 0)) signalIfAlive(pid, 'SIGKILL');
    await exited;
  };
  process.on('exit', () => {
    // Wait for the exit: a server that is still stopping writes into the folder that is removed next.
    const [pgCtl, stopArgs] = asUnprivileged(join(native, 'bin', 'pg_ctl'), ['stop', '-D', data, '-m', 'immediate']);
    if (child?.exitCode === null) spawnSync(pgCtl, stopArgs, { env, cwd: '/' });
    rmSync(home, { recursive: true, force: true });
  });
  await start();
  return { url, start, stop, freeze, kill, data, port };
}

/** Sends a signal and ignores that the process is gone: a PostgreSQL backend may exit at any time. */
function signalIfAlive(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

/**
 * Returns a process and all its descendants. A signal to the process group would miss the backends, which have sessions
 * of their own.
 */
function processTree(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return [pid, ...children.split(' ').filter(Boolean).map(Number)];
}

async function canConnect(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 1000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}

let shared: Promise<PostgresServer> | undefined;

/** The URL of a new, empty database on the shared server. */
export async function createDatabase(server?: PostgresServer): Promise<string> {
  const given = process.env.SANDBAR_TEST_DATABASE_URL;
  if (!server && !given) shared ??= startPostgres();
  const adminUrl = server?.url ?? given ?? (await shared)?.url ?? '';
  const name = `control_plane_${randomBytes(6).toString('hex')}`;
  const client = new pg.Client({ connectionString: adminUrl });
  await client.connect();
  await client.query(`create database ${name}`);
  await client.end();
  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** Stops the shared server, so that the test process can exit. */
export async function endSharedPostgres(): Promise<void> {
  await (await shared)?.stop();
  shared = undefined;
}

/** Waits for a condition. Throws after `timeoutMs` with an error that names the condition. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  timeoutMs = 15_000,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`Waited ${timeoutMs} ms in vain until ${what}.`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
