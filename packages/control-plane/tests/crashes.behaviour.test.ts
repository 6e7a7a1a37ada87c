// Kills the control-plane process in the middle of every kind of operation. The next process must finish all of these
// operations within 30 s, even when the host carries out calls of the dead process late.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import type { HostSummary, NewAccount } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import pg from 'pg';
import { callAdmin } from './support/admin.ts';
import type { Fault, Operation } from './support/fake-host/calls.ts';
import { FakeHost } from './support/fake-host.ts';
import { freePorts } from './support/free-ports.ts';
import { checkAudit } from './support/in-order.ts';
import { createDatabase, endSharedPostgres, until } from './support/postgres.ts';

const MAIN = new URL('../src/main.ts', import.meta.url).pathname;
const WITHIN_MS = 30_000;
const databaseUrl = await createDatabase();
const home = mkdtempSync(join(tmpdir(), 'sandbar-crash-'));
const { adminSocket, hostAgentSocket } = homePaths(home);
mkdirSync(join(home, 'run'), { recursive: true });
const host = new FakeHost(hostAgentSocket, { subnet: '10.83.0.0/16' });
await host.listen();
const children: ChildProcess[] = [];
const clients: pg.Client[] = [];
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  for (const client of clients) await client.end();
  host.heal();
  await host.away();
  await endSharedPostgres();
  rmSync(home, { recursive: true, force: true });
});

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: databaseUrl });
  clients.push(client);
  await client.connect();
  return client;
}

type Plane = { kill: () => Promise<void>; call: (method: string, path: string) => Promise<Called> };
type Called = { status: number; json: Record<string, string> };
let account: NewAccount | undefined;

/** Starts the control plane as a child process and waits until it is connected to the fake host. */
async function startPlane(): Promise<Plane> {
  const [port, metricsPort] = await freePorts(2);
  const child = spawn(process.execPath, [MAIN], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: {
      PATH: process.env.PATH ?? '',
      SANDBAR_HOME: home,
      SANDBAR_LISTEN: `127.0.0.1:${port}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
      SANDBAR_DATABASE_URL: databaseUrl,
      SANDBAR_RATE_MUTATING: '1000/1000',
      SANDBAR_ALLOW_EMULATED_TENANTS: '1',
      SANDBAR_SECRET: 'a secret of the tests that is long enough',
      SANDBAR_LOG_LEVEL: 'fatal',
    },
  });
  children.push(child);
  await once(child, 'message');
  const hasHost = async () => {
    const { json } = await callAdmin<{ hosts: HostSummary[] }>(adminSocket, '/admin/hosts');
    return json.hosts.some(({ state }) => state === 'ready');
  };
  await until(hasHost, 'it has its host');
  const body = { email: 'owner@example.test', tier: 'enterprise', billing_mode: 'unmetered' };
  account ??= (await callAdmin<NewAccount>(adminSocket, '/admin/accounts', body)).json;
  const headers = { authorization: `Bearer ${account.api_key}` };
  return {
    kill: async () => {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    },
    call: async (method, path) => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers });
      const text = await response.text();
      return { status: response.status, json: text === '' ? {} : JSON.parse(text) };
    },
  };
}

async function make(plane: Plane): Promise<string> {
  const { status, json } = await plane.call('POST', '/v1/machines');
  assert.equal(status, 201, JSON.stringify(json));
  return String(json.id);
}

type Act = {
  name: string;
  operation: Operation;
  /** Creates the machine or volume that the operation is about, and returns its id. */
  prepare: (plane: Plane) => Promise<string>;
  ask: (plane: Plane, id: string) => Promise<Called>;
  /** The allowed final states of the row. `gone` means that the row was deleted. */
  ends: string[];
};

const stopped = async (plane: Plane) => {
  const id = await make(plane);
  assert.equal((await plane.call('POST', `/v1/machines/${id}/stop`)).status, 200);
  return id;
};
const kept = async (plane: Plane) => {
  const { json } = await plane.call('DELETE', `/v1/machines/${await make(plane)}?preserve_storage=true`);
  return String(json.root_volume_id);
};

const ACTS: Act[] = [
  {
    name: 'create',
    operation: 'ensure',
    prepare: async () => '',
    ask: (plane) => plane.call('POST', '/v1/machines'),
    ends: ['running', 'gone'],
  },
  {
    name: 'start',
    operation: 'ensure',
    prepare: stopped,
    ask: (plane, id) => plane.call('POST', `/v1/machines/${id}/start`),
    ends: ['running'],
  },
  {
    name: 'stop',
    operation: 'ensure',
    prepare: make,
    ask: (plane, id) => plane.call('POST', `/v1/machines/${id}/stop`),
    ends: ['stopped'],
  },
  {
    name: 'delete',
    operation: 'delete',
    prepare: make,
    ask: (plane, id) => plane.call('DELETE', `/v1/machines/${id}`),
    ends: ['destroyed'],
  },
  {
    name: 'delete keeping the disk',
    operation: 'delete',
    prepare: make,
    ask: (plane, id) => plane.call('DELETE', `/v1/machines/${id}?preserve_storage=true`),
    ends: ['destroyed'],
  },
  {
    name: 'delete of a volume',
    operation: 'deleteVolume',
    prepare: kept,
    ask: (plane, id) => plane.call('DELETE', `/v1/volumes/${id}`),
    ends: ['gone'],
  },
];

type UnderWay = { act: Act; id: string; answer: Promise<Called | undefined> };

/** Begins every operation, one after the other. Each of them stops at its host call, which hangs. */
async function beginAll(plane: Plane, faults: readonly Fault[]): Promise<UnderWay[]> {
  const begun: UnderWay[] = [];
  for (const fault of faults) {
    for (const act of ACTS) {
      const prepared = await act.prepare(plane);
      const before = host.calls.length;
      // Of other operations, only the next call hangs. For deleteVolume all calls must hang, because the reconciler
      // sends that call too.
      host.fault(act.operation, fault, act.operation === 'deleteVolume' ? Number.POSITIVE_INFINITY : 1);
      const answer = act.ask(plane, prepared).catch(() => undefined);
      const asked = () => host.calls.slice(before).find(({ operation }) => operation === act.operation);
      await until(() => asked() !== undefined, `the ${act.name} reached the host`);
      begun.push({ act, id: asked()?.machineId ?? '', answer });
    }
  }
  return begun;
}

const database = await connect();
const stateOf = async ({ act, id }: UnderWay): Promise<string> => {
  const isVolume = act.operation === 'deleteVolume';
  const { rows } = await database.query(
    `select state, exists (
       select from operations where finished_at is null and $1 in (machine_id, volume_id)) as busy
     from (select id, state from machines where not $2 union all select id, state from volumes where $2) as rows
     where id = $1`,
    [id, isVolume],
  );
  return rows[0] === undefined ? 'gone' : rows[0].busy ? `${rows[0].state}, busy` : rows[0].state;
};

/** Waits until every operation that was begun has reached one of its allowed final states. */
async function expectEnds(begun: readonly UnderWay[]): Promise<void> {
  const open = async () => {
    const left: string[] = [];
    for (const one of begun) {
      const state = await stateOf(one);
      if (!one.act.ends.includes(state)) left.push(`${one.act.name} of ${one.id}: ${state}`);
    }
    return left;
  };
  await until(async () => (await open()).length === 0, 'every operation ended', WITHIN_MS).catch(async (error) => {
    throw new Error(`${error.message} Left: ${(await open()).join('; ')}`);
  });
}

describe('kill -9 of the control plane (CTL-3)', () => {
  it('while every operation waits for the host: all end within 30 s, and the host’s late calls change nothing', async () => {
    const first = await startPlane();
    const begun = await beginAll(first, ['hang', 'hangAfter']);
    await first.kill();
    await Promise.all(begun.map(({ answer }) => answer));
    host.fault('deleteVolume', 'fail', 0);
    const second = await startPlane();
    await expectEnds(begun);
    await checkAudit(adminSocket);
    // Only now does the host carry out the calls of the dead process.
    host.heal();
    await checkAudit(adminSocket);
    await expectEnds(begun);
    await second.kill();
  });

  it('between the host’s answer and the end of every operation: all end within 30 s', async () => {
    const first = await startPlane();
    const begun = await beginAll(first, ['hang']);
    const ids = begun.map(({ id }) => id);
    const lock = await connect();
    await lock.query('begin');
    await lock.query('select id from machines where id = any($1) for update', [ids]);
    await lock.query('select id from volumes where id = any($1) for update', [ids]);
    host.heal();
    const waiting = async () =>
      (await database.query(`select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock'`)).rows[0]
        .n;
    // Every operation now waits for the lock in its last transaction. Together they need no more connections than the
    // pool has.
    await until(async () => (await waiting()) >= begun.length, 'every operation waits for the database');
    await first.kill();
    await lock.query('rollback');
    const second = await startPlane();
    await expectEnds(begun);
    await checkAudit(adminSocket);
    await second.kill();
  });

  it('again and again while operations begin: in the end all is in order', async () => {
    for (let round = 0; round < 3; round++) {
      const plane = await startPlane();
      const [toStop, toKeep, toDelete] = [await make(plane), await make(plane), await make(plane)];
      const before = host.changeCount;
      const asked = Promise.allSettled([
        plane.call('POST', '/v1/machines'),
        plane.call('POST', `/v1/machines/${toStop}/stop`),
        plane.call('DELETE', `/v1/machines/${toKeep}?preserve_storage=true`),
        plane.call('DELETE', `/v1/machines/${toDelete}`),
      ]);
      // Kill the control plane in the middle of these operations, after a different number of changes on the host in
      // each round.
      await until(() => host.changeCount > before + round, 'something reached the host');
      await plane.kill();
      await asked;
    }
    const last = await startPlane();
    const open = async () =>
      (await database.query('select count(*)::int as n from operations where finished_at is null')).rows[0].n;
    await until(async () => (await open()) === 0, 'every machine is what it should be', WITHIN_MS);
    await checkAudit(adminSocket);
    await last.kill();
  });
});
