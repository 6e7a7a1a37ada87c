// Requests to a service that a test has started, and jobs on its machines.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { Exec, ExecOutput } from '@sandbar/contract/exec.ts';
import { read, until } from './until.ts';

export const SMALL = { memory_mb: 128, rootfs_size_gb: 2 };

type Refusal = { code: string; detail: string };
export type Api = <T = Refusal>(method: string, path: string, body?: object) => Promise<{ status: number; body: T }>;

/** Returns a function that sends requests to the service of a data directory, with the key in its credentials.json. */
export function apiOf(home: string): Api {
  const { base_url, api_key } = JSON.parse(read(`${home}/credentials.json`)) as Record<string, string>;
  return async <T>(method: string, at: string, body?: object) => {
    const response = await fetch(`${base_url}${at}`, {
      method,
      headers: { authorization: `Bearer ${api_key}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    return { status: response.status, body: (await response.json()) as T };
  };
}

export async function startJob(api: Api, machineId: string, command: string): Promise<string> {
  const { status, body } = await api<Exec>('POST', `/v1/machines/${machineId}/execs`, { command });
  assert.equal(status, 201, JSON.stringify(body));
  return body.id;
}

/** Waits until the job has ended and returns its exit code, or null when a signal ended it. */
export async function endOf(api: Api, machineId: string, jobId: string): Promise<number | null> {
  let job: Exec | undefined;
  await until(`job ${jobId} ends`, async () => {
    const answer = await api<Exec>('GET', `/v1/machines/${machineId}/execs/${jobId}?wait_ms=1000`);
    if (answer.status === 200) job = answer.body;
    return job !== undefined && job.status !== 'running';
  });
  return job?.exit_code ?? null;
}

export async function hashOutput(api: Api, machineId: string, jobId: string): Promise<string> {
  const hash = createHash('sha256');
  for (let offset = 0, eof = false; !eof; ) {
    const query = `stream=stdout&offset=${offset}&limit=1048576`;
    const page = await api<ExecOutput>('GET', `/v1/machines/${machineId}/execs/${jobId}/output?${query}`);
    assert.equal(page.status, 200);
    hash.update(Buffer.from(page.body.data, 'base64'));
    ({ next_offset: offset, eof } = page.body);
  }
  return hash.digest('hex');
}
