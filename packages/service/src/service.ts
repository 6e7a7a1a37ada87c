// The service of one host: claims the data directory, starts the processes in order and ends them in reverse order.
//
//   PostgreSQL  ─ready─> control plane ─ready─> first account
//   host agent  ──────────────┘ (may be ready later; the control plane looks for it until it answers)
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { postAdmin } from './admin-client.ts';
import { assertRestored } from './backup/unfinished.ts';
import { apiUrlOf, baseUrlOf, type ServiceConfig } from './config.ts';
import { type Credentials, ensureCredentials, readCredentials } from './credentials.ts';
import { messageOf, Problem } from './problem.ts';
import type { Progress } from './progress.ts';
import { ensureDashboard } from './setup/dashboard.ts';
import { ensureHome } from './setup/home.ts';
import { ensurePostgresData } from './setup/postgres-data.ts';
import { ensureSecret } from './setup/secret.ts';
import type { UserIds } from './setup/service-user.ts';
import { copyCertificate } from './supervise/certificate-copy.ts';
import {
  type Confine,
  controlPlaneDefinition,
  hostAgentDefinition,
  postgresDefinition,
} from './supervise/definitions.ts';
import { confinementFor, makeMountPoint, mountPointOf, noConfinement, removeMountPoint } from './supervise/launch.ts';
import { endLeftovers } from './supervise/leftovers.ts';
import { claimPidFile, readPidFile, removePidFile } from './supervise/pid-file.ts';
import { assertPortFree } from './supervise/ports.ts';
import { isAlive } from './supervise/process-identity.ts';
import { DEFAULT_BACKOFF, type ProcessDefinition, SupervisedProcess } from './supervise/supervised-process.ts';

/** How long all machines together may take to stop. The host agent gives each machine less time, then kills it. */
const STOP_MACHINES_MS = 60_000;

export interface RunningService {
  readonly baseUrl: string;
  readonly hasDashboard: boolean;
  readonly credentials: Credentials;
  /** Stops the machines, then ends the processes. After an abort of `hurry` it no longer waits for the machines. */
  stop(hurry?: AbortSignal): Promise<void>;
}

export type StartOptions = {
  config: ServiceConfig;
  /** The account of the unprivileged processes; undefined when the caller is not root. */
  user: UserIds | undefined;
  progress: Progress;
  /** An abort ends all processes that were started so far, and the start rejects. */
  signal?: AbortSignal;
};

/** Starts everything and resolves when the API answers. Throws Problem, with nothing left running. */
export async function startService({ config, user, progress, signal }: StartOptions): Promise<RunningService> {
  const paths = homePaths(config.home);
  await ensureHome(config.home, user);
  const holder = claimPidFile(paths.pidFile('supervisor'));
  if (holder !== undefined) throw alreadyRunning(config.home, holder.pid);

  const mountPoint = mountPointOf(config.home);
  const processes: SupervisedProcess[] = [];
  const failed = new AbortController();
  const buildSignal = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal]);
  let dashboard: Promise<string | undefined> | undefined;
  const ended = new AbortController();
  const endProcesses = async () => {
    ended.abort();
    // End the processes in reverse order: each process ends before the processes that it depends on.
    for (const supervised of processes.toReversed()) await supervised.stop();
    if (user !== undefined) removeMountPoint(mountPoint);
    removePidFile(paths.pidFile('supervisor'));
  };

  try {
    // A restore holds the same pid file, so it cannot begin from here on.
    assertRestored(config.home);
    readCredentials(paths.credentials);
    const report = (line: string) => progress.say(`  ! ${line}`);
    await endLeftovers(config.home, report);
    await assertPorts(config);
    const secret = config.env.SANDBAR_SECRET || (await ensureSecret(paths.secret));

    if (user !== undefined) makeMountPoint(mountPoint);
    const confine: Confine = (capabilities) =>
      user === undefined
        ? noConfinement(config.checkout)
        : confinementFor(mountPoint, config.checkout, user, capabilities);
    const { certificate } = config;
    if (user !== undefined && certificate !== undefined) {
      await copyCertificate({ files: certificate, folder: paths.tls, user, report }, ended.signal);
    }
    const backoff = { ...DEFAULT_BACKOFF, startWithinMs: config.startPatienceMs };
    const start = async (definition: ProcessDefinition) => {
      const supervised = new SupervisedProcess(definition, report, backoff);
      processes.push(supervised);
      await progress.step(supervised.name, () => unlessAborted(supervised.start(), signal));
    };

    const hostAgent = start(hostAgentDefinition(config, user?.gid));
    dashboard = progress.step('dashboard', (say) =>
      ensureDashboard(config.checkout, config.cacheDir, say, buildSignal),
    );
    // Both are awaited below. Until then, Node must not treat their failures as unhandled rejections.
    for (const promise of [hostAgent, dashboard]) promise.catch(() => {});
    if (config.databaseUrl === undefined) {
      await progress.step('database', () => ensurePostgresData(config.home, confine()));
      await start(postgresDefinition(config, confine));
    }
    const dashboardDir = await dashboard;
    await Promise.all([hostAgent, start(controlPlaneDefinition(config, secret, confine, dashboardDir))]);

    await unlessAborted(waitUntilServing(`${baseUrlOf(config.metricsListen)}/readyz`, config.startPatienceMs), signal);
    const baseUrl = apiUrlOf(config);
    const credentials = await ensureCredentials(paths.credentials, baseUrl, paths.adminSocket);
    return {
      baseUrl,
      hasDashboard: dashboardDir !== undefined,
      credentials,
      stop: async (hurry) => {
        await progress.step('machines', () => stopMachines(paths.adminSocket, progress, hurry));
        await progress.step('processes', endProcesses);
      },
    };
  } catch (error) {
    // End the build of the dashboard too, because this process exits after a failed start.
    failed.abort();
    await dashboard?.catch(() => {});
    await endProcesses();
    throw error;
  }
}

/**
 * Throws Problem when another supervisor runs on the data directory. This check runs before the set-up, so a second
 * `npm start` fails early. If two start at the same moment, both may pass it, and only one then gets the pid file.
 */
export function assertNotRunning(home: string): void {
  const holder = readPidFile(homePaths(home).pidFile('supervisor'));
  if (holder !== undefined && isAlive(holder)) throw alreadyRunning(home, holder.pid);
}

/** The Problem of a data directory on which another supervisor runs. */
export function alreadyRunning(home: string, pid: number): Problem {
  return new Problem(
    `Sandbar is already running on ${home} (pid ${pid}): use it, end it with Ctrl-C or "kill ${pid}", or name another SANDBAR_HOME`,
  );
}

/** Waits until the control plane reaches the database and the host agent. Throws Problem when it does not in time. */
async function waitUntilServing(url: string, patienceMs: number): Promise<void> {
  for (const until = performance.now() + patienceMs; ; await delay(20)) {
    const response = await fetch(url).catch(() => undefined);
    await response?.body?.cancel();
    if (response?.ok) return;
    if (performance.now() > until) {
      throw new Problem(`The control plane does not reach the database or the host agent: ${url} says which`);
    }
  }
}

async function assertPorts({ listen, metricsListen }: ServiceConfig): Promise<void> {
  for (const [variable, address] of [
    ['SANDBAR_LISTEN', listen],
    ['SANDBAR_METRICS_LISTEN', metricsListen],
  ] as const) {
    await assertPortFree(variable, address);
  }
}

/** Never throws: the service must end even when the control plane does not answer. Then the machines go on running. */
async function stopMachines(adminSocket: string, progress: Progress, hurry: AbortSignal | undefined): Promise<void> {
  try {
    const stopping = postAdmin(adminSocket, '/admin/machines/stop-all', {}, STOP_MACHINES_MS);
    const answer = await unlessAborted(stopping, hurry);
    const failed = Number(answer.body.failed ?? 0);
    if (answer.status >= 300) throw new Error(String(answer.body.detail));
    if (failed > 0) progress.say(`  ! ${failed} machines were not stopped; the next start finds them`);
  } catch (error) {
    progress.say(
      hurry?.aborted
        ? '  ! not waiting for machines; the next start finds them'
        : `  ! the machines were not stopped (${messageOf(error)}); the next start finds them`,
    );
  }
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  return Promise.race([work, promise]).finally(() => signal.removeEventListener('abort', onAbort));
}
