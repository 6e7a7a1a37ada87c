// Tests of the number of snapshots that an account may have.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkAll } from './support/in-order.ts';
import { startTestBed } from './support/test-bed.ts';

const LIMIT = 3;
const bed = await startTestBed({ replicas: 2, bounds: { snapshotsPerAccount: LIMIT } });
const { api, host, keys, replicas } = bed;
const newMachine = async (key = keys.full): Promise<string> =>
  (await api('POST', '/v1/machines', { key, body: { memory_mb: 128 } })).json.id;
const snap = (machine: string, replica = 0, key = keys.full) =>
  api('POST', `/v1/machines/${machine}/snapshots`, { key, plane: replicas[replica] ?? bed.plane });
const countRows = async (): Promise<number> => (await api('GET', '/v1/snapshots')).json.snapshots.length;

describe('the limit of snapshots of an account', () => {
  it('lets exactly that many of parallel requests pass, over two replicas (CTL-7)', async () => {
    const machines = await Promise.all(Array.from({ length: 10 }, () => newMachine()));
    const answers = await Promise.all(machines.map((machine, index) => snap(machine, index % 2)));
    assert.equal(answers.filter(({ status }) => status === 201).length, LIMIT);
    const refused = answers.filter(({ status }) => status !== 201);
    for (const { status, json } of refused) {
      assert.deepEqual([status, json.code], [403, 'quota_exceeded']);
      assert.match(json.detail, /^The limit of snapshots .*: used 3, requested 1, limit 3\./);
    }
    assert.equal(await countRows(), LIMIT);
    assert.equal((await snap(await newMachine(keys.other), 0, keys.other)).status, 201, 'another account has its own');
    await checkAll(bed);
  });

  it('has room again when a snapshot is deleted, and when one failed', async () => {
    const [first] = (await api('GET', '/v1/snapshots')).json.snapshots;
    const machine = await newMachine();
    assert.equal((await snap(machine)).status, 403);
    assert.equal((await api('DELETE', `/v1/snapshots/${first.id}`)).status, 204);
    host.fault('takeSnapshot', 'fail', 1);
    assert.equal((await snap(machine)).status, 500);
    await bed.settled(async () => (await snap(machine)).status === 201);
    assert.equal((await snap(machine)).status, 403);
    assert.equal(await countRows(), LIMIT);
    await checkAll(bed);
  });
});
