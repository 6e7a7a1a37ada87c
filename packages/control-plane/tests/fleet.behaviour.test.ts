// Tests of several replicas on one database: migrations, capacity and addresses during 50 parallel creates, and
// reconcilers that run side by side.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { asOwner } from '../src/db/database.ts';
import { MIGRATIONS, migrate } from '../src/db/migrate.ts';
import { createLog } from '../src/log.ts';
import { leaveOperation } from './support/operations.ts';
import { createDatabase, until } from './support/postgres.ts';
import { checkBooks, startTestBed, type TestBed } from './support/test-bed.ts';

describe('migrations', () => {
  it('ten replicas starting at once apply them once', async () => {
    const url = await createDatabase();
    const migrateOnce = () => asOwner(url, createLog('silent'), migrate);
    const applied = await Promise.all(Array.from({ length: 10 }, migrateOnce));
    assert.deepEqual(applied.flat(), Object.keys(MIGRATIONS));
    assert.deepEqual(await migrateOnce(), []);
  });
});

describe('two replicas', () => {
  it('make 50 machines at once with 50 addresses, and agree on everything', async () => {
    const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/26' } });
    const { api, replicas, host } = bed;
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        api('POST', '/v1/machines', { plane: replicas[index % 2] ?? bed.plane, body: { memory_mb: 128 } }),
      ),
    );
    assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [201]);
    const addresses = answers.map((answer) => answer.json.private_ip);
    assert.equal(new Set(addresses).size, 50);
    for (const address of addresses) assert(!/\.(0|1|2|3|63)$/.test(address), address);
    await checkBooks(bed);

    // A /26 subnet has 64 addresses, 5 of them reserved. After the 50 creates, nine more machines fit, and the next one
    // is refused.
    for (let index = 0; index < 9; index++)
      assert.equal((await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).status, 201);
    const full = await api('POST', '/v1/machines', { body: { memory_mb: 128 } });
    assert.deepEqual([full.status, full.json.code], [503, 'fleet_capacity']);
    assert.match(full.json.detail, /address/);
    const freed = answers[17]?.json;
    await api('DELETE', `/v1/machines/${freed.id}`);
    assert.equal((await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).json.private_ip, freed.private_ip);
    await checkBooks(bed);

    const job = await api('POST', `/v1/machines/${answers[0]?.json.id}/execs`, { body: { command: 'sleep' } });
    host.endJob(answers[0]?.json.id, job.json.id, { exit_code: 1 });
    for (const plane of replicas) {
      const path = `/v1/machines/${answers[0]?.json.id}/execs/${job.json.id}`;
      await until(async () => (await api('GET', path, { plane })).json.exit_code === 1, 'both replicas see the end');
    }
  });

  it('finish what a third left, once', async () => {
    const bed = await startTestBed({ replicas: 3 });
    const { api, host, replicas } = bed;
    const ids: string[] = [];
    for (let index = 0; index < 10; index++) ids.push((await api('POST', '/v1/machines')).json.id);
    const before = host.callsOf('ensure');
    for (const id of ids) await leaveOperation(bed.plane.app.db, id, { kind: 'stop' });
    await Promise.all(replicas.map((replica) => replica.reconciler.runOnce()));
    await until(async () => {
      const { json } = await api('GET', '/v1/machines?state=stopped');
      return json.machines.length === 10;
    }, 'all are stopped');
    assert.equal(host.callsOf('ensure') - before, 10, 'each was asked for once');
    await checkBooks(bed);
  });
});

describe('capacity', () => {
  it('100 creates race for 10 places: exactly 10, and the counter equals a recount', async () => {
    const bed = await startTestBed({
      replicas: 2,
      overcommit: { memory: 1.25 },
      host: { memory_mb: 8192, subnet: '10.83.0.0/16' },
    });
    const { api, replicas } = bed;
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        api('POST', '/v1/machines', { plane: replicas[index % 2] ?? bed.plane }),
      ),
    );
    const made = answers.filter((answer) => answer.status === 201);
    assert.equal(made.length, 10);
    const refused = answers.filter((answer) => answer.status !== 201);
    for (const answer of refused) {
      assert.deepEqual([answer.status, answer.json.code], [503, 'fleet_capacity']);
      assert.match(answer.json.detail, /limit of the fleet, not a quota/);
      assert(answer.headers.get('retry-after'));
    }
    await checkBooks(bed);

    const id = made[0]?.json.id;
    await api('POST', `/v1/machines/${id}/stop`);
    assert.equal((await api('POST', '/v1/machines')).status, 201, 'a stopped machine holds no memory');
    const start = await api('POST', `/v1/machines/${id}/start`);
    assert.deepEqual([start.status, start.json.code], [503, 'fleet_capacity'], 'a start needs it again');
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.state, 'stopped');
    await checkBooks(bed);
    const large = await api('POST', '/v1/machines', { body: { memory_mb: 8193 } });
    assert.deepEqual([large.status, large.json.code], [400, 'validation_error'], 'no host can ever hold it whole');
    assert.match(large.json.detail, /memory_mb must be at most 8192, the memory of the largest host/);
  });

  const GIB_IN_MB = 1024;
  const disk = (freeGb: number) => ({
    total_mb: 110 * GIB_IN_MB,
    free_mb: freeGb * GIB_IN_MB,
    reserve_mb: 10 * GIB_IN_MB,
  });
  const fill = async (bed: TestBed, body: object) => {
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        bed.api('POST', '/v1/machines', { plane: bed.replicas[index % 2] ?? bed.plane, body }),
      ),
    );
    for (const { status, json, headers } of answers.filter((answer) => answer.status !== 201)) {
      assert.deepEqual([status, json.code], [503, 'fleet_capacity']);
      assert.match(json.detail, /limit of the fleet, not a quota/);
      assert(headers.get('retry-after'));
    }
    await checkBooks(bed);
    return answers.filter((answer) => answer.status === 201).map((answer) => answer.json.id);
  };

  it('creates race for the vCPUs of a host as for its memory, and a stopped machine holds none (RES-1)', async () => {
    const bed = await startTestBed({
      replicas: 2,
      overcommit: { vcpus: 4 },
      host: { cpus: 4, subnet: '10.83.0.0/16' },
    });
    const [id, ...others] = await fill(bed, { memory_mb: 128, vcpus: 2 });
    assert.equal(others.length, 7, '4 cores, four times, for machines of 2 vCPUs');
    await bed.api('POST', `/v1/machines/${id}/stop`);
    assert.equal((await bed.api('POST', '/v1/machines', { body: { memory_mb: 128 } })).status, 201);
    assert.equal((await bed.api('POST', `/v1/machines/${id}/start`)).status, 503, 'one vCPU is left of its two');
    await checkBooks(bed);
  });

  it('creates and volumes race for the disk of a host, and a stopped machine holds its disk (RES-1)', async () => {
    const bed = await startTestBed({
      ...{ replicas: 2, overcommit: { disk: 2 } },
      host: { disk: disk(90), subnet: '10.83.0.0/16' },
    });
    const { api } = bed;
    const ids = await fill(bed, { memory_mb: 128, rootfs_size_gb: 10 });
    assert.equal(ids.length, 20, '100 GiB without the reserve, twice');
    await api('POST', `/v1/machines/${ids[0]}/stop`);
    assert.equal((await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).status, 503);
    assert.equal((await api('POST', `/v1/machines/${ids[0]}/start`)).status, 200, 'a start needs no more disk');
    const full = await api('POST', '/v1/volumes', { body: { size_gb: 6 } });
    assert.deepEqual([full.status, full.json.code], [503, 'fleet_capacity']);
    const kept = await api('DELETE', `/v1/machines/${ids[0]}?preserve_storage=true`);
    assert.equal((await api('POST', '/v1/volumes', { body: { size_gb: 6 } })).status, 503, 'its disk is a volume now');
    await checkBooks(bed);
    const body = { memory_mb: 128, root_volume_id: kept.json.root_volume_id };
    const again = await api('POST', '/v1/machines', { body });
    assert.equal(again.status, 201, 'it takes the disk that is promised already');
    await checkBooks(bed);
    await api('DELETE', `/v1/machines/${again.json.id}`);
    const volume = await api('POST', '/v1/volumes', { body: { size_gb: 10 } });
    assert.equal(volume.status, 201);
    assert.equal((await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).status, 503);
    await api('DELETE', `/v1/volumes/${volume.json.id}`);
    assert.equal((await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).status, 201);
    await checkBooks(bed);
  });

  it('a machine or volume larger than the disk of the largest host offers is a 400 that names it (RES-1)', async () => {
    const { api } = await startTestBed({ overcommit: { disk: 2 }, host: { disk: disk(90) } });
    const machine = await api('POST', '/v1/machines', { body: { memory_mb: 128, rootfs_size_gb: 201 } });
    assert.deepEqual([machine.status, machine.json.code], [400, 'validation_error']);
    assert.match(machine.json.detail, /rootfs_size_gb must be at most 200, 2 times the disk of the largest host/);
    const volume = await api('POST', '/v1/volumes', { body: { size_gb: 201 } });
    assert.deepEqual([volume.status, volume.json.code], [400, 'validation_error']);
    assert.match(volume.json.detail, /size_gb must be at most 200, 2 times the disk of the largest host/);
    const small = await startTestBed({
      overcommit: { disk: 1 },
      host: { disk: { total_mb: 9 * GIB_IN_MB, free_mb: 9000, reserve_mb: 2048 } },
    });
    assert.equal((await small.api('POST', '/v1/machines')).status, 400, 'also for the default size');
  });

  it('a host at its reserve takes no machine and no volume until it has room again (RES-1)', async () => {
    const bed = await startTestBed({ host: { disk: disk(90) }, timing: { reconcileJobsMs: 50 } });
    const { api, host } = bed;
    const freeIs = async (freeGb: number) => {
      host.info.disk = disk(freeGb);
      const row = () => bed.plane.app.db.selectFrom('hosts').select('disk_free_mb').executeTakeFirstOrThrow();
      await bed.settled(async () => (await row()).disk_free_mb === freeGb * GIB_IN_MB);
    };
    await freeIs(10);
    for (const [path, body] of [
      ['/v1/machines', { memory_mb: 128 }],
      ['/v1/volumes', { size_gb: 5 }],
    ] as const) {
      const { status, json, headers } = await api('POST', path, { body });
      assert.deepEqual([status, json.code], [503, 'fleet_capacity'], path);
      assert(headers.get('retry-after'));
    }
    await checkBooks(bed);
    await freeIs(11);
    assert.equal((await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).status, 201);
  });
});
