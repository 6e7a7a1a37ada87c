// Checks that new machines are spread over the hosts, and what happens to machines whose host is cut off: for a moment,
// and for longer than its lease. Each function returns a sentence for each difference from what should be.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import type { Exec } from '@sandbar/contract/exec.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Fleet } from './bed/fleet.ts';

const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };
/** How long a host is cut off for a moment, in seconds: longer than a heartbeat, shorter than the lease. */
const CUT_SEC = 10;
const PATIENCE_MS = 120_000;
/** The pause before a request that was refused with 503 is sent again. */
const RETRY_MS = 1_000;

type Answer = { status: number; body: { detail?: string; [name: string]: unknown } };
export type Call = (method: string, path: string, body?: object) => Promise<Answer>;

export function callWith(baseUrl: string, apiKey: string): Call {
  return async (method, at, body) => {
    const response = await fetch(`${baseUrl}${at}`, {
      method,
      headers: { authorization: `Bearer ${apiKey}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? {} : JSON.parse(text) };
  };
}

/** Makes two machines for each host. Returns those of each host, by the host's number. */
export async function checkSpread(
  fleet: Fleet,
  call: Call,
): Promise<{ differences: string[]; machines: ReadonlyMap<number, string[]> }> {
  await until('an image is known', async () => ((await call('GET', '/v1/images')).body.images as unknown[]).length > 0);
  for (let number = 0; number < fleet.hosts.length * 2; number++) await create(call);
  const machines = new Map(fleet.hosts.map((_, index) => [index + 1, fleet.machinesOn(index + 1)]));
  const empty = [...machines].filter(([, ids]) => ids.length === 0);
  return { differences: empty.map(([host]) => `host ${host} got none of the machines`), machines };
}

/** Cuts a host off while a job of a machine there writes. Afterwards the machine has the same VM and all its output. */
export async function checkShortCut(fleet: Fleet, call: Call, host: number, machineId: string): Promise<string[]> {
  const differences: string[] = [];
  const vm = vmOf(fleet, host, machineId);
  const command = `i=0; while [ $i -lt ${CUT_SEC * 4} ]; do i=$((i+1)); echo line $i; sleep 0.5; done`;
  const job = (await call('POST', `/v1/machines/${machineId}/execs`, { command })).body as unknown as Exec;
  fleet.network.cut(host);
  const refused = await call('POST', `/v1/machines/${machineId}/execs`, { command: 'true' });
  if (refused.status !== 503) differences.push(`an exec on a host that is cut off answered ${refused.status}`);
  await delay(CUT_SEC * 1000);
  fleet.network.heal(host);
  const path = `/v1/machines/${machineId}/execs/${job.id}`;
  let ended: Answer = { status: 0, body: {} };
  await until('the job has ended', async () => {
    ended = await call('GET', `${path}?wait_ms=5000`);
    return ended.status === 200 && ended.body.status !== 'running';
  });
  if (ended.body.status !== 'exited') differences.push(`the job of a cut-off host ended as ${ended.body.status}`);
  const page = await call('GET', `${path}/output?stream=stdout&limit=1048576`);
  const output = Buffer.from(String(page.body.data), 'base64').toString();
  const expected = Array.from({ length: CUT_SEC * 4 }, (_, index) => `line ${index + 1}\n`).join('');
  if (output !== expected) differences.push('the output of a job that ran during a cut is not what it wrote');
  if (vmOf(fleet, host, machineId) !== vm) differences.push('a machine has another VM after its host was cut off');
  return differences;
}

/** Cuts a host off for longer than its lease. Its machines become `error`, and their VMs are ended when it is back. */
export async function checkLongCut(
  fleet: Fleet,
  call: Call,
  host: number,
  machineIds: readonly string[],
): Promise<string[]> {
  const differences: string[] = [];
  const get = async (id: string) => (await call('GET', `/v1/machines/${id}`)).body as unknown as Machine;
  fleet.network.cut(host);
  await until('the host is away', async () => (await listHosts(fleet)).some(({ state }) => state === 'away'));
  // The other replica may have chosen the host before it was told that the host is away. A client tries again then.
  const first = await call('POST', '/v1/machines', SMALL);
  if (first.status === 503) await delay(RETRY_MS);
  const other = first.status === 503 ? await call('POST', '/v1/machines', SMALL) : first;
  if (other.status !== 201) {
    differences.push(`a create while a host is away answered ${other.status} ${JSON.stringify(other.body)}`);
  }
  await until('its machines are given up', async () =>
    (await Promise.all(machineIds.map(get))).every(({ state }) => state === 'error'),
  );
  for (const id of machineIds) {
    const { error } = await get(id);
    if (!error || error.includes('10.213.')) differences.push(`the reason of a machine that was given up is ${error}`);
    if (vmOf(fleet, host, id) === undefined) differences.push('a host that was cut off has ended a machine by itself');
  }
  fleet.network.heal(host);
  await until('the VMs of the machines are ended', () => machineIds.every((id) => !vmOf(fleet, host, id)));
  for (const id of machineIds) {
    const { status } = await call('DELETE', `/v1/machines/${id}`);
    if (status !== 200) differences.push(`the delete of a machine that was given up answered ${status}`);
  }
  return differences;
}

async function create(call: Call): Promise<void> {
  const { status, body } = await call('POST', '/v1/machines', SMALL);
  if (status !== 201) throw new Error(`a create answered ${status}: ${body.detail}`);
}

const listHosts = async (fleet: Fleet): Promise<HostSummary[]> =>
  (await fleet.operatorGet<{ hosts: HostSummary[] }>('/admin/hosts')).hosts;

/** The process id of a machine's VM; undefined when it does not run. */
function vmOf(fleet: Fleet, host: number, machineId: string): string | undefined {
  const file = path.join(homePaths(fleet.homeOfHost(host)).runMachines, machineId, 'qemu.pid');
  const pid = existsSync(file) ? readFileSync(file, 'utf8').trim() : undefined;
  return pid !== undefined && existsSync(`/proc/${pid}`) ? pid : undefined;
}

async function until(what: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + PATIENCE_MS; ; await delay(200)) {
    if (await (async () => isTrue())().catch(() => false)) return;
    if (performance.now() > end) throw new Error(`not in ${PATIENCE_MS / 1000} s: ${what}`);
  }
}
