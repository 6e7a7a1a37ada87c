// Tests of several replicas on one database: migrations, capacity and addresses during 50 parallel creates, and
// reconcilers that run side by side.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { asOwner } from '../src/db/database.ts';
import { MIGRATIONS, migrate } from '../src/db/migrate.ts';
import { createLog } from '../src/log.ts';
import { leaveOperation } from './support/operations.ts';
import { createDatabase, until } from './support/postgres.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

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
      overcommit: 1.25,
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
});
