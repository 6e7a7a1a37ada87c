// Creates the accounts that tests use. Each test file has its own, so files do not see each other's machines.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { NewAccount } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine, MachineCreate } from '@sandbar/contract/machine.ts';
import { requestUnix } from '@sandbar/service/unix-request.ts';
import { BASE_URL, HOME } from './service.ts';

export type TestAccount = NewAccount & {
  /** Sends a request with the account's API key. Fails when the status of the answer is 400 or more. */
  call<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T>;
  /** Makes a small machine: 256 MB of memory and a disk of 2 GB. */
  createMachine(wanted?: MachineCreate): Promise<Machine>;
};

/** What the operator sets for an account, with the names of `POST /admin/accounts`. */
export type AccountOptions = { tier?: string; billing_mode?: string; credit_eur?: string };

export async function createAccount(options: AccountOptions = {}): Promise<TestAccount> {
  const body = {
    email: `test-${randomUUID()}@example.test`,
    tier: 'enterprise',
    billing_mode: 'unmetered',
    ...options,
  };
  const made = await operator<NewAccount>('POST', '/admin/accounts', body);
  const call = async <T>(method: string, path: string, content?: unknown): Promise<T> => {
    const response = await fetch(`${BASE_URL}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${made.api_key}`,
        ...(content === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(content === undefined ? {} : { body: JSON.stringify(content) }),
    });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${path} answered ${response.status}: ${text}`);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  };
  const createMachine = (wanted: MachineCreate = {}) =>
    call<Machine>('POST', '/v1/machines', { memory_mb: 256, rootfs_size_gb: 2, ...wanted });
  return { ...made, call, createMachine };
}

/** Sends a request to the operator's socket, as `sandbar admin` does. */
export async function operator<T>(method: 'GET' | 'POST', path: string, body?: object): Promise<T> {
  const { status, text } = await requestUnix(homePaths(HOME).adminSocket, {
    method,
    path,
    ...(body === undefined ? {} : { body }),
  });
  assert.ok(status < 300, `${method} ${path} answered ${status}: ${text}`);
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** Destroys all machines of an account with their snapshots, so that the host has room for other tests. */
export async function destroyMachines({ call }: TestAccount): Promise<void> {
  const { machines } = await call<{ machines: Machine[] }>('GET', '/v1/machines');
  await Promise.all(machines.map(({ id }) => call('DELETE', `/v1/machines/${id}?delete_snapshots=true`)));
}
