// Looks whether the service of a data directory runs and is well.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';
import { homePaths } from '@sandbar/contract/home.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { readCredentials } from '../credentials.ts';
import { messageOf } from '../problem.ts';
import { findSupervisor, readReady } from '../ready-file.ts';
import { readPidFile } from '../supervise/pid-file.ts';
import { isAlive } from '../supervise/process-identity.ts';

/** How long the API may take to answer. */
const ANSWER_MS = 10_000;
const PROCESSES = ['supervisor', 'postgres', 'host-agent', 'control-plane'] as const;

export type ProcessStatus = { name: (typeof PROCESSES)[number]; pid: number; running: boolean };

export type ServiceStatus = {
  state: 'running' | 'starting' | 'stopped';
  /** Whether the service is ready, all of its processes run, and the API answers. */
  healthy: boolean;
  /** A sentence for each fault. */
  problems: string[];
  /** The data directory. */
  home: string;
  address: string | null;
  dashboard: string | null;
  version: string | null;
  processes: ProcessStatus[];
  /** The machines of the account in credentials.json. Null when the API does not answer. */
  machines: { running: number; stopped: number; other: number } | null;
  /** What the data directory occupies on the disk, bytes. Null when there is none. */
  disk_bytes: number | null;
};

/** Throws Problem when a file of the data directory cannot be read. */
export async function readStatus(home: string): Promise<ServiceStatus> {
  const supervisor = findSupervisor(home);
  const ready = supervisor && readReady(home, supervisor);
  const processes = supervisor ? PROCESSES.flatMap((name) => processOf(home, name)) : [];
  const dead = processes.filter(({ running }) => !running);
  const problems = dead.map(({ name, pid }) => `The ${name} (pid ${pid}) has ended.`);
  const [machines, disk_bytes] = await Promise.all([
    ready && countMachines(home, ready.base_url).catch((error: unknown) => void problems.push(messageOf(error))),
    sizeOf(home),
  ]);
  return {
    state: ready ? 'running' : supervisor ? 'starting' : 'stopped',
    healthy: ready !== undefined && problems.length === 0,
    problems,
    home,
    address: ready?.base_url ?? null,
    dashboard: ready?.dashboard_url ?? null,
    version: ready?.version ?? null,
    processes,
    machines: machines ?? null,
    disk_bytes,
  };
}

/** Empty when there is no pid file: an external PostgreSQL has none, and a restarting process has none for a moment. */
function processOf(home: string, name: ProcessStatus['name']): ProcessStatus[] {
  const found = readPidFile(homePaths(home).pidFile(name));
  return found === undefined ? [] : [{ name, pid: found.pid, running: isAlive(found) }];
}

async function countMachines(home: string, baseUrl: string): Promise<NonNullable<ServiceStatus['machines']>> {
  const { credentials } = homePaths(home);
  const apiKey = readCredentials(credentials)?.api_key;
  if (apiKey === undefined) throw new Error(`There is no ${credentials}, so the API was not asked.`);
  const client = new Client({ baseUrl, apiKey, retryForSec: 0, timeoutMs: ANSWER_MS });
  const states = (await client.machines.list()).map(({ state }) => state);
  const running = states.filter((state) => state === 'running').length;
  const stopped = states.filter((state) => state === 'stopped').length;
  return { running, stopped, other: states.length - running - stopped };
}

/** `du` counts the blocks of sparse files and each hard-linked file once. It fails when a file vanishes meanwhile. */
async function sizeOf(home: string): Promise<number | null> {
  if (!existsSync(home)) return null;
  const { stdout } = await promisify(execFile)('du', ['-sxB1', home]).catch((error: { stdout?: string }) => error);
  const bytes = Number.parseInt(stdout ?? '', 10);
  return Number.isFinite(bytes) ? bytes : null;
}
