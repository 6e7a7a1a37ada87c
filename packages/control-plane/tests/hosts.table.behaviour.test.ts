// Tests of what a replica remembers about hosts. The table is never old enough to be read again by itself here, so
// every right answer comes from the UPDATE that reserves, or from the reading before a refusal.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { type RawBuilder, sql } from 'kysely';
import pg from 'pg';
import { checkBooks, startTestBed } from './support/test-bed.ts';
import { refusalOf } from './support/volumes.ts';

const HOUR_MS = 3_600_000;
const bed = await startTestBed({
  timing: { hostFactsMs: HOUR_MS, reconcileMs: HOUR_MS, reconcileJobsMs: HOUR_MS, hostPollMs: HOUR_MS },
  overcommit: { vcpus: 8 },
  host: { cpus: 4 },
});
const { api } = bed;
const { app } = bed.plane;
await bed.plane.reconciler.runOnce();

/** Changes the host's row without a word to the replica. */
const change = async (set: RawBuilder<unknown>) => {
  await sql`update hosts set ${set}`.execute(app.db);
};
const createMachine = (body: object = {}) => api('POST', '/v1/machines', { body: { memory_mb: 128, ...body } });
const createVolume = () => api('POST', '/v1/volumes', { body: { size_gb: 5 } });

afterEach(async () => {
  await change(sql`draining = false, removed_at = null, cpus = 4, disk_free_mb = disk_mb`);
  await app.hostTable.readAgain();
  await checkBooks(bed);
});

describe('a replica whose facts about hosts are out of date', () => {
  for (const [what, broken, mended] of [
    ['is drained', sql`draining = true`, sql`draining = false`],
    ['has no free disk', sql`disk_free_mb = disk_reserve_mb`, sql`disk_free_mb = disk_mb`],
  ] as const) {
    it(`places nothing on a host that ${what} since, and uses it again at once`, async () => {
      assert.equal((await createMachine()).status, 201);
      for (const create of [createMachine, createVolume]) {
        await change(broken);
        assert.deepEqual(refusalOf(await create()), [503, 'fleet_capacity'], create.name);
        await change(mended);
        assert.equal((await create()).status, 201, create.name);
      }
    });
  }

  it('places nothing on a host that was removed since', async () => {
    assert.equal((await createMachine()).status, 201);
    await change(sql`removed_at = now()`);
    assert.deepEqual(refusalOf(await createMachine()), [503, 'host_unavailable']);
    await change(sql`removed_at = null`);
    assert.equal((await createMachine()).status, 201);
  });

  it('starts a stopped machine on a host that is drained since', async () => {
    const { id } = (await createMachine()).json;
    await api('POST', `/v1/machines/${id}/stop`);
    await change(sql`draining = true`);
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 200);
  });

  it('uses room that others have released, and refuses when others have taken it', async () => {
    await change(sql`reserved_vcpus = reserved_vcpus + 31`);
    assert.deepEqual(refusalOf(await createMachine({ vcpus: 4 })), [503, 'fleet_capacity']);
    await change(sql`reserved_vcpus = reserved_vcpus - 31`);
    assert.equal((await createMachine({ vcpus: 4 })).status, 201);
  });

  it('allows the size of a host that has grown since, and names the size of one that has shrunk', async () => {
    assert.deepEqual(refusalOf(await createMachine({ vcpus: 5 })), [400, 'validation_error']);
    await change(sql`cpus = 8`);
    assert.equal((await createMachine({ vcpus: 5 })).status, 201);
    await change(sql`cpus = 2`);
    const refused = await createMachine({ vcpus: 9 });
    assert.match(refused.json.detail, /vcpus must be at most 2, the cores of the largest host/);
  });

  it('asks to retry, and blames no size, while the only host has joined and reported nothing yet', async () => {
    await change(sql`cpus = 0`);
    await app.hostTable.readAgain();
    assert.deepEqual(refusalOf(await createMachine()), [503, 'host_unavailable']);
  });

  it('uses an image that a host has since', async () => {
    const renamed = sql`images = jsonb_set(images, '{0,stack}', '"late"')`;
    await change(renamed);
    assert.equal((await createMachine({ stack: 'late' })).status, 201);
    await change(sql`images = jsonb_set(images, '{0,stack}', '"base"')`);
  });

  it('refuses an account that is over its quota without reading the hosts again', async () => {
    await sql`update accounts set limit_machines = used_machines where id = ${bed.accountId}`.execute(app.db);
    const readings = await countReadings(async () => {
      assert.deepEqual(refusalOf(await createMachine()), [403, 'quota_exceeded']);
    });
    await sql`update accounts set limit_machines = null where id = ${bed.accountId}`.execute(app.db);
    assert.equal(readings, 0);
  });
});

describe('the table of hosts', () => {
  it('is read once for all that wait for it', async () => {
    const readings = await countReadings(() =>
      Promise.all(Array.from({ length: 500 }, () => app.hostTable.readAgain())),
    );
    assert.equal(readings, 1);
  });

  it('is read again when an agent reports something new, and not after each answer of an agent', async () => {
    const { images } = bed.host.info;
    const [image] = images;
    assert(image);
    const askAndRead = async () => {
      await bed.plane.reconciler.runOnce();
      await app.hostTable.read();
    };
    await askAndRead();
    assert.equal(await countReadings(askAndRead), 0);
    images.push({ ...image, stack: 'new', default: false });
    assert.equal(await countReadings(askAndRead), 1);
    images.pop();
    assert.equal(await countReadings(askAndRead), 1);
    assert.equal(await countReadings(askAndRead), 0);
  });

  it('shows a reading that waits everything that was committed before', async () => {
    const first = app.hostTable.readAgain();
    await change(sql`draining = true`);
    const [, second] = await Promise.all([first, app.hostTable.readAgain()]);
    assert.deepEqual(
      second.map(({ draining }) => draining),
      [true],
    );
  });
});

/** Counts how often the table is read while `work` runs. */
async function countReadings(work: () => Promise<unknown>): Promise<number> {
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  let readings = 0;
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    const [first] = args as [string | { text: string }];
    if (/images::text/.test(typeof first === 'string' ? first : first.text)) readings++;
    return Reflect.apply(query, this, args);
  } as pg.Client['query'];
  try {
    await work();
  } finally {
    pg.Client.prototype.query = query as pg.Client['query'];
  }
  return readings;
}
