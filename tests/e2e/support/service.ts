// Requests to the running service over its public API. For tests that kill processes, also reads the pid files in the
// data directory of the service.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Exec, ExecCreate, ExecOutput } from '@sandbar/contract/exec.ts';
import type { Machine, MachineCreate } from '@sandbar/contract/machine.ts';

export const BASE_URL = required('SANDBAR_BASE_URL');
export const API_KEY = required('SANDBAR_API_KEY');
export const HOME = required('SANDBAR_HOME');

/**
 * Factor on the time limits of the tests, for hosts that are much slower than usual, such as the host of `npm run
 * test:kvm`.
 */
export const PATIENCE = Number(process.env.SANDBAR_TEST_PATIENCE || 1);

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run these tests through npm test`);
  return value;
}

export type Answer<T = Record<string, unknown>> = { status: number; headers: Headers; body: T };

/** Sends one request with the API key of the first account, and `body` as JSON when it is given. */
export async function call<T = Record<string, unknown>>(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer<T>> {
  const response = await fetch(`${BASE_URL}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${API_KEY}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    body: (text === '' ? undefined : JSON.parse(text)) as T,
  };
}

/** Sends a request like {@link call} and returns the body. Fails with the answer when its status is not `status`. */
export async function expectStatus<T>(status: number, method: string, path: string, body?: unknown): Promise<T> {
  const answer = await call<T>(method, path, body);
  assert.equal(answer.status, status, `${method} ${path}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** Creates a machine, by default with 256 MB of memory and a disk of 2 GB, so that many fit on the host. */
export function createMachine(wanted: MachineCreate = {}): Promise<Machine> {
  return expectStatus(201, 'POST', '/v1/machines', { memory_mb: 256, rootfs_size_gb: 2, ...wanted });
}

export function getMachine(id: string): Promise<Machine> {
  return expectStatus(200, 'GET', `/v1/machines/${id}`);
}

export async function destroyMachine(id: string): Promise<void> {
  const { status } = await call('DELETE', `/v1/machines/${id}`);
  assert.ok(status === 200 || status === 404, `delete answered ${status}`);
}

export function startExec(machineId: string, job: ExecCreate): Promise<Exec> {
  return expectStatus(201, 'POST', `/v1/machines/${machineId}/execs`, job);
}

/** Resolves with the job when it has ended. Throws when it still runs after `timeoutMs` times {@link PATIENCE}. */
export async function waitForExec(machineId: string, execId: string, timeoutMs = 120_000): Promise<Exec> {
  const deadline = Date.now() + timeoutMs * PATIENCE;
  for (;;) {
    const job = await expectStatus<Exec>(200, 'GET', `/v1/machines/${machineId}/execs/${execId}?wait_ms=10000`);
    if (job.status !== 'running') return job;
    if (Date.now() > deadline) throw new Error(`job ${execId} still runs after ${timeoutMs * PATIENCE} ms`);
  }
}

export function readPage(
  machineId: string,
  execId: string,
  query: Record<string, string | number>,
): Promise<ExecOutput> {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) search.set(key, String(value));
  return expectStatus(200, 'GET', `/v1/machines/${machineId}/execs/${execId}/output?${search}`);
}

/** Reads all output of an ended job on one stream, page by page. */
export async function readAll(
  machineId: string,
  execId: string,
  stream: 'stdout' | 'stderr' = 'stdout',
): Promise<Buffer> {
  const pages: Buffer[] = [];
  for (let offset = 0; ; ) {
    const page = await readPage(machineId, execId, { stream, offset, limit: 1024 * 1024, wait_ms: 1000 });
    pages.push(Buffer.from(page.data, 'base64'));
    offset = page.next_offset;
    if (page.eof) return Buffer.concat(pages);
  }
}

/** Runs a shell command in the machine, waits for its end and returns its exit code and output. */
export async function sh(
  machineId: string,
  command: string,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const job = await startExec(machineId, { command });
  const ended = await waitForExec(machineId, job.id);
  return {
    code: ended.exit_code,
    stdout: (await readAll(machineId, job.id)).toString(),
    stderr: (await readAll(machineId, job.id, 'stderr')).toString(),
  };
}

/** The pid of a process of the service, from its pid file. */
export function pidOf(process: 'postgres' | 'control-plane' | 'host-agent'): number {
  return Number(readFileSync(join(HOME, 'run', `${process}.pid`), 'utf8').split('\n')[0]);
}

/** The pid of the QEMU process of a running machine. */
export function qemuPidOf(machineId: string): number {
  return Number(readFileSync(join(HOME, 'run/machines', machineId, 'qemu.pid'), 'utf8').trim());
}

/** The resident memory of a process, in MiB. */
export function residentMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}

/**
 * Waits until `isTrue` returns or resolves to true. A call that throws counts as false. Throws after `timeoutMs` times
 * {@link PATIENCE}.
 */
export async function until(what: string, isTrue: () => boolean | Promise<boolean>, timeoutMs = 30_000): Promise<void> {
  const limitMs = timeoutMs * PATIENCE;
  const deadline = Date.now() + limitMs;
  for (;;) {
    if (await (async () => isTrue())().catch(() => false)) return;
    if (Date.now() > deadline) throw new Error(`not in ${limitMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/**
 * Waits until a command can run on the machine. It asks every half second, because an account may start 20 jobs a second,
 * refused ones included.
 */
export async function untilItTakesJobs(machineId: string): Promise<void> {
  await until(`machine ${machineId} takes jobs`, async () => {
    const { status } = await call('POST', `/v1/machines/${machineId}/execs`, { command: 'true' });
    if (status !== 201) await new Promise((resolve) => setTimeout(resolve, 500));
    return status === 201;
  });
}
