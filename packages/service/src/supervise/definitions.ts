// The three processes of a host: how each is started, when it is ready, and how it is ended.
import { type ChildProcess, spawn } from 'node:child_process';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { SECRETS_FD, splitSecrets, TRACING_SECRETS } from '@sandbar/contract/secrets.ts';
import { formatAddress, type ServiceConfig } from '../config.ts';
import { isComplete } from '../setup/dashboard-builds.ts';
import { DATABASE, DATABASE_USER, postgresProgram } from '../setup/postgres-data.ts';
import { COPIES } from './certificate-copy.ts';
import { type Capabilities, type Confinement, launchUnprivileged } from './launch.ts';
import { isPrivileged } from './ports.ts';
import type { ProcessDefinition } from './supervised-process.ts';

const NODE = 'node_modules/node/bin/node';
const READY_POLL_MS = 20;
/** The number of the control plane's file descriptor from which it reads the secrets. */
const SECRETS_DESCRIPTOR = 4;

/**
 * The buffers are small, because the database holds only hundreds of small rows. The connections suffice for one pool
 * for each replica. PostgreSQL's defaults for durability (fsync, full_page_writes) stay, because the data includes
 * money.
 */
const POSTGRES_SETTINGS: Record<string, string> = {
  listen_addresses: '',
  max_connections: '200',
  unix_socket_permissions: '0700',
  shared_buffers: '64MB',
  max_wal_size: '256MB',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_line_prefix: '%m [%p] ',
};

/** Makes a fresh confinement for one process. */
export type Confine = (capabilities?: Capabilities) => Confinement;

export function postgresDefinition({ home }: ServiceConfig, confine: Confine): ProcessDefinition {
  const paths = homePaths(home);
  return {
    name: 'postgres',
    logFile: `${paths.logs}/postgres.log`,
    pidFile: paths.pidFile('postgres'),
    stopSignal: 'SIGINT',
    stopWithinMs: 20_000,
    spawn(log) {
      const confinement = confine();
      const data = confinement.bind(paths.postgresData, 'postgres');
      const sockets = confinement.bind(paths.postgresSocketDir, 'run/postgres');
      const settings = Object.entries(POSTGRES_SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
      const args = ['-D', data, '-k', sockets, ...settings];
      return launchUnprivileged(confinement, postgresProgram(confinement.checkout, 'postgres'), args, {
        env: { TZ: 'UTC', LC_ALL: 'C' },
        stdio: ['ignore', log, log],
      });
    },
    waitUntilReady: (signal) => waitForDatabase(databaseUrlOf(paths.postgresSocketDir), signal),
  };
}

/** The URL of the embedded database. It needs no password: only its account and root can open the socket's folder. */
export function databaseUrlOf(socketDir: string): string {
  return `postgres://${DATABASE_USER}@localhost/${DATABASE}?host=${encodeURIComponent(socketDir)}`;
}

async function waitForDatabase(url: string, signal: AbortSignal): Promise<void> {
  // Load the client only now: this takes time, and PostgreSQL is starting meanwhile anyway.
  const { default: pg } = await import('pg');
  for (;;) {
    signal.throwIfAborted();
    const client = new pg.Client({ connectionString: url });
    // A failed connection emits this event besides rejecting the promise; without a listener it would end the process.
    client.on('error', () => {});
    const isReady = await client.connect().then(
      () => true,
      () => false,
    );
    await client.end().catch(() => {});
    if (isReady) return;
    await delay(READY_POLL_MS, undefined, { signal });
  }
}

export function hostAgentDefinition(config: ServiceConfig, serviceGid: number | undefined): ProcessDefinition {
  const { home, cacheDir, checkout } = config;
  const paths = homePaths(home);
  return {
    name: 'host-agent',
    logFile: `${paths.logs}/host-agent.log`,
    pidFile: paths.pidFile('host-agent'),
    stopSignal: 'SIGTERM',
    stopWithinMs: 15_000,
    spawn: (log) =>
      spawn(path.join(checkout, NODE), nodeArgs(checkout, 'host-agent', COLLECTABLE), {
        stdio: ['ignore', log, log, 'ipc'],
        detached: true,
        cwd: '/',
        env: {
          ...splitSecrets(withoutClientSettings(config.env)).rest,
          ...tracingSecrets(config.env),
          SANDBAR_HOME: home,
          SANDBAR_CACHE: cacheDir,
          ...compileCache(paths.run),
          ...(serviceGid === undefined ? {} : { SANDBAR_SERVICE_GID: String(serviceGid) }),
        },
      }),
  };
}

/**
 * The secrets that the host agent needs. They are in its environment, which only root can read, and the agent removes them
 * from there before it starts other processes.
 */
function tracingSecrets(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(TRACING_SECRETS.flatMap((name) => (env[name] ? [[name, env[name]]] : [])));
}

/** `dashboardDir`: the folder with the built dashboard; undefined: there is none. */
export function controlPlaneDefinition(
  config: ServiceConfig,
  secret: string,
  confine: Confine,
  dashboardDir: string | undefined,
): ProcessDefinition {
  const paths = homePaths(config.home);
  return {
    name: 'control-plane',
    logFile: `${paths.logs}/control-plane.log`,
    pidFile: paths.pidFile('control-plane'),
    stopSignal: 'SIGTERM',
    stopWithinMs: config.stopWithinMs,
    spawn(log): ChildProcess {
      const confinement = confine(hasLowPort(config) ? '-all,+net_bind_service' : '-all');
      const run = confinement.bind(paths.run, 'run');
      if (config.hasAcme) confinement.bind(paths.acme, 'acme');
      // Someone may have cleaned the cache since the last start. Then the API starts without the dashboard.
      const hasDashboard = dashboardDir !== undefined && isComplete(dashboardDir);
      const dashboard = hasDashboard ? confinement.bind(dashboardDir, 'dashboard') : undefined;
      const databaseUrl = config.databaseUrl ?? databaseUrlOf(`${run}/postgres`);
      const node = `${confinement.checkout}/${NODE}`;
      const { secrets, rest } = splitSecrets(settingsFor(config.env));
      const child = launchUnprivileged(
        confinement,
        node,
        nodeArgs(confinement.checkout, 'control-plane', SMALL_HEAP, COLLECTABLE),
        {
          env: {
            ...rest,
            SANDBAR_HOME: path.dirname(run),
            SANDBAR_LISTEN: formatAddress(config.listen),
            SANDBAR_METRICS_LISTEN: formatAddress(config.metricsListen),
            ...certificateFor(config, confinement, run),
            ...(dashboard === undefined ? {} : { SANDBAR_DASHBOARD_DIR: dashboard }),
            [SECRETS_FD]: String(SECRETS_DESCRIPTOR),
            ...MEMORY_SETTINGS,
            ...compileCache(`${run}/control-plane`),
          },
          stdio: ['ignore', log, log, 'ipc', 'pipe'],
        },
      );
      sendSecrets(child, { ...secrets, SANDBAR_DATABASE_URL: databaseUrl, SANDBAR_SECRET: secret });
      return child;
    },
  };
}

/** The authority asks at port 80, so with ACME the control plane listens there, unless it is told another port. */
const hasLowPort = ({ listen, metricsListen, hasAcme }: ServiceConfig): boolean =>
  hasAcme || isPrivileged(listen) || isPrivileged(metricsListen);

/** The files of the certificate as the control plane sees them: the originals, or their copies in its confinement. */
function certificateFor({ certificate, home }: ServiceConfig, { user }: Confinement, run: string): NodeJS.ProcessEnv {
  if (certificate === undefined) return {};
  const folder = `${run}${homePaths(home).tls.slice(homePaths(home).run.length)}`;
  return user === undefined
    ? { SANDBAR_TLS_CERT: certificate.cert, SANDBAR_TLS_KEY: certificate.key }
    : { SANDBAR_TLS_CERT: `${folder}/${COPIES.cert}`, SANDBAR_TLS_KEY: `${folder}/${COPIES.key}` };
}

/**
 * Settings of glibc's malloc for the control plane. Blocks from 16 KiB on, such as pages of job output, get a mapping
 * of their own, so their memory returns to the system when they are freed. Otherwise it stays in fragments of the heap:
 * after 1,000 event streams that nobody read, 328 MB stayed resident instead of 258 (bench/attacks.ts).
 */
export const MEMORY_SETTINGS = { MALLOC_MMAP_THRESHOLD_: '16384', MALLOC_ARENA_MAX: '2' };

/**
 * Option of Node for the control plane: V8 collects the garbage of the old generation when the heap has grown by 30 %
 * since the last collection. By default, the heap may become several times as large as its live objects. During the
 * attacks of bench/attacks.ts, at most 234 MB were resident with this option, and 321 MB without it.
 */
export const SMALL_HEAP = '--heap-growing-percent=30';

/**
 * An option of Node that lets a process start a garbage collection. The process does so while it passes on large files.
 */
export const COLLECTABLE = '--expose-gc';

/** Writes the secrets to the descriptor that the control plane reads at its start. */
function sendSecrets(child: ChildProcess, secrets: NodeJS.ProcessEnv): void {
  const pipe = child.stdio[SECRETS_DESCRIPTOR] as Writable;
  // If the child exits at once, the pipe breaks. Ignore this error, because the supervisor reports the exit.
  pipe.on('error', () => {});
  pipe.end(JSON.stringify(secrets));
}

/**
 * The young generation of V8's heap is small. With the default of 16 MiB, garbage from pages of job output stays
 * resident (measured: 9 MB less at rest, same throughput).
 */
export function nodeArgs(checkout: string, name: string, ...more: string[]): string[] {
  return [
    '--disable-warning=ExperimentalWarning',
    '--max-semi-space-size=2',
    ...more,
    `${checkout}/packages/${name}/src/main.ts`,
  ];
}

/**
 * Makes Node cache the JavaScript that it compiles from our TypeScript, so that the next start does not load the
 * compiler (measured on the host agent: ready after 320 instead of 620 ms, 99 instead of 126 MB). Only the process
 * itself may write the folder, because Node executes the cached code.
 */
function compileCache(folder: string): { NODE_COMPILE_CACHE: string } {
  return { NODE_COMPILE_CACHE: `${folder}/compile-cache` };
}

/** Removes the API key and URL from the caller's environment, because only clients use them. */
function withoutClientSettings(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { SANDBAR_API_KEY: _key, SANDBAR_BASE_URL: _url, ...rest } = env;
  return rest;
}

/**
 * The part of the caller's environment that the control plane gets: the settings of Sandbar, PostgreSQL and
 * OpenTelemetry, the time zone and the proxies.
 */
function settingsFor(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const isPassed = (name: string) => /^(SANDBAR_|OTEL_|PG|TZ$|NODE_EXTRA_CA_CERTS$)|_proxy$/i.test(name);
  return Object.fromEntries(Object.entries(withoutClientSettings(env)).filter(([name]) => isPassed(name)));
}
