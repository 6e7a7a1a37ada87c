// Tests of quotas: what counts, what is refused and with which message, and that the usage counters equal a recount
// whatever happens in which order.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Amounts, QUOTA_DIMENSIONS, TIER_LIMITS } from '@sandbar/contract/tier-limits.ts';
import fc from 'fast-check';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  host: { cpus: 16, subnet: '10.83.0.0/16', memory_mb: 4_000_000 },
  replicas: 2,
});
const { api, host, plane } = bed;
const { db } = plane.app;
let accounts = 0;

type Tenant = { accountId: string; key: string };
async function newAccount(changes: Parameters<typeof insertAccount>[1] | object = {}): Promise<Tenant> {
  const accountId = await insertAccount(db, { email: `q${accounts++}@example.test`, tier: 'free', ...changes });
  return { accountId, key: await insertKey(db, accountId, 'full', 'quota') };
}

async function usedBy(key: string): Promise<Amounts> {
  const { json } = await api('GET', '/v1/quotas', { key });
  return Object.fromEntries(
    json.quotas.map(({ name, used }: { name: string; used: number }) => [name, used]),
  ) as Amounts;
}

const refusal = (answer: { status: number; json: { code: string; detail: string } }) => [
  answer.status,
  answer.json.code,
  answer.json.detail,
];

describe('GET /v1/quotas', () => {
  it('has the five dimensions in their order, the limits of the tier, and words', async () => {
    const { key } = await newAccount();
    const { json } = await api('GET', '/v1/quotas', { key });
    assert.equal(json.tier, 'free');
    assert.deepEqual(
      json.quotas.map(({ name, used, limit }: { name: string; used: number; limit: number }) => [name, used, limit]),
      QUOTA_DIMENSIONS.map((name) => [name, 0, TIER_LIMITS.free[name]]),
    );
    assert(json.quotas.every(({ description }: { description: string }) => description.length > 20));
  });

  it('shows an override of the account', async () => {
    const { accountId, key } = await newAccount();
    await db.updateTable('accounts').set({ limit_machines: 7 }).where('id', '=', accountId).execute();
    const { json } = await api('GET', '/v1/quotas', { key });
    assert.equal(json.quotas[0].limit, 7);
  });

  it('tells the largest machine: the least of the account, the largest host and the bounds of every machine', async () => {
    const { accountId, key } = await newAccount();
    const largest = async () => (await api('GET', '/v1/quotas', { key })).json.largest_machine;
    assert.deepEqual(await largest(), { vcpus: 2, memory_mb: 2048, rootfs_size_gb: 1024 });
    await db
      .updateTable('accounts')
      .set({ limit_vcpus_per_machine: 100, limit_memory_mb_per_machine: 8192 })
      .where('id', '=', accountId)
      .execute();
    assert.deepEqual(await largest(), { vcpus: 16, memory_mb: 8192, rootfs_size_gb: 1024 });
  });
});

describe('a create', () => {
  it('over a quota is a 403 that names the dimension, used, requested and limit', async () => {
    const { key } = await newAccount();
    const body = { vcpus: 2, memory_mb: 1024 };
    for (let made = 0; made < 2; made++) assert.equal((await api('POST', '/v1/machines', { key, body })).status, 201);
    assert.deepEqual(refusal(await api('POST', '/v1/machines', { key, body: { vcpus: 1 } })), [
      403,
      'quota_exceeded',
      'The quota vcpus of the account would be exceeded: used 4, requested 1, limit 4.',
    ]);
    await checkBooks(bed);
  });

  it('that several dimensions refuse names the first in their order', async () => {
    const { accountId, key } = await newAccount();
    const names: [column: `limit_${(typeof QUOTA_DIMENSIONS)[number]}`, dimension: string][] = [
      ['limit_storage_gb', 'storage_gb'],
      ['limit_memory_mb', 'memory_mb'],
      ['limit_vcpus', 'vcpus'],
      ['limit_machines', 'machines'],
    ];
    for (const [column, dimension] of names) {
      await db
        .updateTable('accounts')
        .set({ [column]: 0 })
        .where('id', '=', accountId)
        .execute();
      assert.match((await api('POST', '/v1/machines', { key })).json.detail, new RegExp(`quota ${dimension} of`));
    }
  });

  it('over the per-machine maximum is a 400, also when the quota is full', async () => {
    const { key } = await newAccount();
    for (const [body, detail] of [
      [{ vcpus: 3 }, /vcpus must be at most 2 for this account/],
      [{ memory_mb: 2049 }, /memory_mb must be at most 2048 for this account/],
    ] as const) {
      const answer = await api('POST', '/v1/machines', { key, body });
      assert.deepEqual([answer.status, answer.json.code], [400, 'validation_error']);
      assert.match(answer.json.detail, detail);
    }
    const payg = await newAccount({ tier: 'payg' });
    assert.equal((await api('POST', '/v1/machines', { key: payg.key, body: { vcpus: 8 } })).status, 201);
    assert.equal((await api('POST', '/v1/machines', { key: payg.key, body: { memory_mb: 16_385 } })).status, 400);
  });

  it('on an empty prepaid wallet is a 402, before the quota; with money it runs, and a start asks again', async () => {
    const { accountId, key } = await newAccount({ billingMode: 'prepaid' });
    await db.updateTable('accounts').set({ limit_machines: 0 }).where('id', '=', accountId).execute();
    const empty = await api('POST', '/v1/machines', { key });
    assert.deepEqual([empty.status, empty.json.code], [402, 'insufficient_balance']);
    await db.updateTable('accounts').set({ limit_machines: null }).where('id', '=', accountId).execute();
    const credit = (amountMicros: number) =>
      db.transaction().execute((tx) => addEntry(tx, { accountId, kind: 'bonus', amountMicros, note: '' }));
    await credit(1_000_000);
    const { json, status } = await api('POST', '/v1/machines', { key });
    assert.equal(status, 201);
    await api('POST', `/v1/machines/${json.id}/stop`, { key });
    await db
      .transaction()
      .execute((tx) => addEntry(tx, { accountId, kind: 'correction', amountMicros: -1_000_000, note: '' }));
    assert.equal((await api('POST', `/v1/machines/${json.id}/start`, { key })).json.code, 'insufficient_balance');
    await checkBooks(bed);
  });

  it('50 at once over two replicas against a limit of 3 make exactly 3', async () => {
    const { key } = await newAccount();
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        api('POST', '/v1/machines', { key, body: { memory_mb: 128 }, plane: bed.replicas[index % 2] ?? plane }),
      ),
    );
    const count = (status: number) => answers.filter((answer) => answer.status === status).length;
    assert.deepEqual([count(201), count(403)], [3, 47]);
    assert.equal((await usedBy(key)).machines, 3);
    await checkBooks(bed);
  });
});

describe('what counts', () => {
  it('a stopped machine does, one in error does not, a destroyed one does not, a failed create leaves nothing', async () => {
    const { key } = await newAccount();
    const none = { machines: 0, vcpus: 0, memory_mb: 0, storage_gb: 0, volumes: 0 };
    const one = { machines: 1, vcpus: 1, memory_mb: 1024, storage_gb: 10, volumes: 0 };
    const { id } = (await api('POST', '/v1/machines', { key })).json;
    assert.deepEqual(await usedBy(key), one);
    await api('POST', `/v1/machines/${id}/stop`, { key });
    assert.deepEqual(await usedBy(key), one);
    await api('POST', `/v1/machines/${id}/start`, { key });
    host.end(id, 'failed', 'The guest crashed.');
    await bed.settled(async () => (await api('GET', `/v1/machines/${id}`, { key })).json.state === 'error');
    assert.deepEqual(await usedBy(key), none);
    await api('DELETE', `/v1/machines/${id}`, { key });
    assert.deepEqual(await usedBy(key), none);
    host.fault('ensure', 'fail', 1);
    assert.equal((await api('POST', '/v1/machines', { key })).status, 500);
    assert.deepEqual(await usedBy(key), none);
    await checkBooks(bed);
  });

  it('a kept root disk counts in storage_gb only, also when its machine was in error, until it is deleted', async () => {
    const { key } = await newAccount();
    const { id } = (await api('POST', '/v1/machines', { key, body: { rootfs_size_gb: 7 } })).json;
    host.end(id, 'failed', 'The guest crashed.');
    await bed.settled(async () => (await api('GET', `/v1/machines/${id}`, { key })).json.state === 'error');
    const destroyed = await api('DELETE', `/v1/machines/${id}?preserve_storage=true`, { key });
    const volumeId = destroyed.json.root_volume_id;
    assert(volumeId);
    assert.deepEqual(await usedBy(key), { machines: 0, vcpus: 0, memory_mb: 0, storage_gb: 7, volumes: 0 });
    const { json } = await api('GET', `/v1/volumes/${volumeId}`, { key });
    assert.deepEqual([json.kind, json.state, json.size_gb], ['root', 'available', 7]);
    await checkBooks(bed);
    assert.equal((await api('DELETE', `/v1/volumes/${volumeId}`, { key })).status, 204);
    assert.equal((await usedBy(key)).storage_gb, 0);
    await checkBooks(bed);
  });
});

type Model = { id: string; vcpus: number; memory: number; disk: number; state: 'running' | 'stopped' | 'error' };
type World = Tenant & { machines: Model[]; volumes: { id: string; size: number }[] };
type Step = { what: string; vcpus: number; memory: number; disk: number; pick: number };

const STEP: fc.Arbitrary<Step> = fc.record({
  what: fc.constantFrom('create', 'create', 'failedCreate', 'stop', 'start', 'crash', 'destroy', 'preserve', 'drop'),
  vcpus: fc.integer({ min: 1, max: 3 }),
  memory: fc.integer({ min: 128, max: 2200 }),
  disk: fc.integer({ min: 2, max: 16 }),
  pick: fc.nat({ max: 50 }),
});

/** Computes the expected usage from the model alone, without reading the database. */
function expectedUse({ machines, volumes }: World): Amounts {
  const counted = machines.filter((machine) => machine.state !== 'error');
  const sum = (pick: (machine: Model) => number) => counted.reduce((total, machine) => total + pick(machine), 0);
  const kept = volumes.reduce((total, volume) => total + volume.size, 0);
  return {
    machines: counted.length,
    vcpus: sum((machine) => machine.vcpus),
    memory_mb: sum((machine) => machine.memory),
    storage_gb: sum((machine) => machine.disk) + kept,
    volumes: 0,
  };
}

/** Computes the expected status and, for a 403, the first quota dimension that the create would exceed. */
function expectedStatus(world: World, { vcpus, memory, disk }: Step): [number, string | undefined] {
  const limits = TIER_LIMITS.free;
  if (vcpus > limits.vcpus_per_machine || memory > limits.memory_mb_per_machine) return [400, undefined];
  const used = expectedUse(world);
  const wanted = { machines: 1, vcpus, memory_mb: memory, storage_gb: disk, volumes: 0 };
  const bound = QUOTA_DIMENSIONS.find((name) => wanted[name] > 0 && used[name] + wanted[name] > limits[name]);
  return bound ? [403, bound] : [201, undefined];
}

async function create(world: World, step: Step, isFailing: boolean): Promise<void> {
  const body = { vcpus: step.vcpus, memory_mb: step.memory, rootfs_size_gb: step.disk };
  const [status, dimension] = expectedStatus(world, step);
  if (isFailing) host.fault('ensure', 'fail', 1);
  const answer = await api('POST', '/v1/machines', { key: world.key, body });
  host.heal();
  assert.equal(answer.status, isFailing && status === 201 ? 500 : status, answer.text);
  if (dimension) assert.match(answer.json.detail, new RegExp(`The quota ${dimension} of`));
  if (answer.status !== 201) return;
  world.machines.push({ id: answer.json.id, ...step, state: 'running' } as Model);
}

async function apply(world: World, step: Step): Promise<void> {
  const { key } = world;
  if (step.what === 'create' || step.what === 'failedCreate') return create(world, step, step.what === 'failedCreate');
  if (step.what === 'drop') {
    const volume = world.volumes[step.pick % Math.max(1, world.volumes.length)];
    if (!volume) return;
    assert.equal((await api('DELETE', `/v1/volumes/${volume.id}`, { key })).status, 204);
    world.volumes.splice(world.volumes.indexOf(volume), 1);
    return;
  }
  const machine = world.machines[step.pick % Math.max(1, world.machines.length)];
  if (!machine) return;
  const path = `/v1/machines/${machine.id}`;
  if (step.what === 'stop' || step.what === 'start') {
    const { status } = await api('POST', `${path}/${step.what}`, { key });
    assert.equal(status, machine.state === 'error' ? 409 : 200);
    if (status === 200) machine.state = step.what === 'stop' ? 'stopped' : 'running';
  } else if (step.what === 'crash') {
    if (machine.state !== 'running') return;
    host.end(machine.id, 'failed', 'The guest crashed.');
    await bed.settled(async () => (await api('GET', path, { key })).json.state === 'error');
    machine.state = 'error';
  } else {
    const { json } = await api('DELETE', `${path}?preserve_storage=${step.what === 'preserve'}`, { key });
    world.machines.splice(world.machines.indexOf(machine), 1);
    if (step.what === 'preserve') world.volumes.push({ id: json.root_volume_id, size: machine.disk });
  }
}

describe('random creates, stops, starts, crashes, deletes and preserves', () => {
  it('use exactly what the model says, after every step', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(STEP, { minLength: 5, maxLength: 30 }), async (steps) => {
        const world: World = { ...(await newAccount()), machines: [], volumes: [] };
        for (const step of steps) {
          await apply(world, step);
          assert.deepEqual(await usedBy(world.key), expectedUse(world), step.what);
        }
        for (const { id } of world.machines) await api('DELETE', `/v1/machines/${id}`, { key: world.key });
      }),
      { numRuns: 25 },
    );
    await checkBooks(bed);
  });
});
