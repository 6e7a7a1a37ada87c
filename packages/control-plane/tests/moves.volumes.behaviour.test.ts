// Tests of volumes that move to another host: for an attach, for a create and at a crash of the process at any step.
// There is always one host that has the volume, its content stays, and room is reserved exactly once.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { deleteVolume } from '../src/volumes/destroy.ts';
import type { FakeHost } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { contentOn, createMoveActs, hostIdOf, testEveryFate } from './support/moves.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs, refusalOf } from './support/volumes.ts';

const bed = await startTestBed({ remotes: [{}, {}], timing: { claimTtlMs: 2_000, claimRenewMs: 300 } });
const { api, host: first } = bed;
const [second, third] = bed.remotes as [FakeHost, FakeHost];
const { app } = bed.plane;
const acts = createVolumeActs(bed);
const moves = createMoveActs(bed);

type Moved = { id: string; contents: Record<string, string> };
/** Makes a volume on a host. */
const volumeOn = async (host: FakeHost): Promise<Moved> => {
  await moves.openOnly(host);
  const id = await acts.makeVolume();
  await moves.openOnly(first, second, third);
  const content = contentOn(host, id);
  assert(content);
  return { id, contents: { [id]: content } };
};
const machineOn = async (host: FakeHost): Promise<string> => {
  await moves.openOnly(host);
  const id = await acts.makeMachine();
  await moves.openOnly(first, second, third);
  return id;
};
const checkIsOn = (host: FakeHost, { id, contents }: Moved) => moves.checkIsOn(host, id, contents[id]);

afterEach(moves.cleanUp);

describe('an attach to a machine on another host', () => {
  it('moves the volume with its content, and back again', async () => {
    const volume = await volumeOn(first);
    const [here, there] = [await machineOn(first), await machineOn(second)];
    for (const [machine, host] of [
      [there, second],
      [here, first],
      [there, second],
    ] as const) {
      const attached = await acts.attach(volume.id, machine, '/data');
      assert.equal(attached.status, 200, attached.text);
      await moves.settled();
      await checkIsOn(host, volume);
      assert.equal((await acts.detach(volume.id)).status, 200);
    }
    const actions = await acts.entriesOf(volume.id);
    assert.deepEqual(new Set(actions), new Set(['volume.created', 'volume.attached', 'volume.detached']));
    assert.equal(actions.length, 7, 'a move writes no entry');
  });

  it('moves nothing when it is refused anyway', async () => {
    const volume = await volumeOn(first);
    const machine = await machineOn(second);
    await acts.attached(machine, '/data');
    assert.deepEqual(refusalOf(await acts.attach(volume.id, machine, '/data')), [409, 'conflict']);
    await checkIsOn(first, volume);
  });

  it('of two machines at once, one gets it', async () => {
    const volume = await volumeOn(first);
    const machines = [await machineOn(second), await machineOn(third)];
    const answers = await Promise.all(machines.map((machine) => acts.attach(volume.id, machine)));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409]);
    await moves.settled();
    await checkIsOn(answers[0]?.status === 200 ? second : third, volume);
  });

  it('while the volume moves for another attach is refused at once, on the same host too, and the first one gets it', async () => {
    const volume = await volumeOn(first);
    const [winner, beside, elsewhere] = [await machineOn(second), await machineOn(second), await machineOn(third)];
    const before = third.changeCount;
    first.fault('sendCopy', 'hang', 1);
    const attaching = acts.attach(volume.id, winner);
    await bed.settled(() => first.calls.some((call) => call.operation === 'sendCopy' && call.machineId === volume.id));
    for (const machine of [beside, elsewhere]) {
      const answer = await acts.attach(volume.id, machine);
      assert.deepEqual(refusalOf(answer), [409, 'conflict']);
      assert.match(answer.json.detail, new RegExp(`is moving to the host of machine ${winner}, to be attached there`));
    }
    first.release();
    assert.equal((await attaching).status, 200);
    await moves.settled();
    await checkIsOn(second, volume);
    assert.equal(third.changeCount, before, 'nothing was copied to the third host');
    assert.equal((await acts.detach(volume.id)).status, 200);
    assert.equal((await acts.attach(volume.id, elsewhere)).status, 200);
  });

  it('is 503 while a host does not answer, goes on in the background, and a retry gets the result', async () => {
    const volume = await volumeOn(first);
    const machine = await machineOn(second);
    second.fault('receiveCopy', 'drop', 3);
    const failed = await acts.attach(volume.id, machine);
    assert.equal(failed.status, 503, failed.text);
    const attached = await acts.attach(volume.id, machine);
    assert([200, 503].includes(attached.status), attached.text);
    await bed.settled(async () => (await acts.attach(volume.id, machine)).status === 200);
    await moves.settled();
    await checkIsOn(second, volume);
  });

  it('is refused when the other host refuses, and the volume can be used where it is', async () => {
    const volume = await volumeOn(first);
    const [here, there] = [await machineOn(first), await machineOn(second)];
    second.fault('receiveCopy', new ServiceError('fleet_capacity', 'The disk is full.'));
    assert.deepEqual(refusalOf(await acts.attach(volume.id, there)), [503, 'fleet_capacity']);
    assert.equal((await acts.attach(volume.id, here)).status, 200);
    second.heal();
    await moves.settled();
    await checkIsOn(first, volume);
  });

  it('is refused when the other host has no room, and nothing is reserved', async () => {
    const volume = await volumeOn(first);
    const machine = await machineOn(second);
    await moves.openOnly(first);
    assert.deepEqual(refusalOf(await acts.attach(volume.id, machine)), [503, 'fleet_capacity']);
    await checkIsOn(first, volume);
  });
});

describe('a create with volumes', () => {
  const create = (volumes: readonly string[], body: object = {}) =>
    api('POST', '/v1/machines', {
      body: { memory_mb: 128, volumes: volumes.map((volume_id) => ({ volume_id })), ...body },
    });

  it('brings volumes of several hosts together', async () => {
    const volumes = [await volumeOn(first), await volumeOn(second), await volumeOn(second)];
    const made = await create(volumes.map(({ id }) => id));
    assert.equal(made.status, 201, made.text);
    assert(second.machines.has(made.json.id), 'the host with most of them gets the machine');
    await moves.settled();
    for (const volume of volumes) await checkIsOn(second, volume);
  });

  it('moves them from a host that takes nothing new', async () => {
    const volume = await volumeOn(first);
    await moves.openOnly(third);
    const made = await create([volume.id]);
    assert.equal(made.status, 201, made.text);
    await moves.settled();
    await checkIsOn(third, volume);
  });

  it('moves them to the host of its snapshot', async () => {
    const machine = await machineOn(second);
    const snapshot = (await api('POST', `/v1/machines/${machine}/snapshots`)).json.id;
    const volume = await volumeOn(first);
    const made = await create([volume.id], { snapshot_id: snapshot });
    assert.equal(made.status, 201, made.text);
    await moves.settled();
    await checkIsOn(second, volume);
    await api('DELETE', `/v1/snapshots/${snapshot}`);
  });

  it('moves a root volume too, and asks another host when one lacks its image', async () => {
    const machine = await machineOn(first);
    const disk = first.machines.get(machine)?.disk;
    const root = (await api('DELETE', `/v1/machines/${machine}?preserve_storage=true`)).json.root_volume_id;
    await moves.openOnly(second, third);
    second.lacksImages = true;
    const made = await create([], { root_volume_id: root });
    assert.equal(made.status, 201, made.text);
    assert.equal(third.machines.get(made.json.id)?.disk, disk);
    await moves.settled();
    assert(!first.volumes.has(root) && !second.volumes.has(root));
  });

  it('is one machine for two requests with one Idempotency-Key', async () => {
    const volume = await volumeOn(first);
    await moves.openOnly(second);
    const headers = { 'idempotency-key': randomUUID() };
    const body = { memory_mb: 128, volumes: [{ volume_id: volume.id }] };
    const [one, other] = await Promise.all([1, 2].map(() => api('POST', '/v1/machines', { body, headers })));
    assert.deepEqual([one?.status, other?.status].sort(), [200, 201], `${one?.text} ${other?.text}`);
    assert.equal(one?.json.id, other?.json.id);
    await moves.settled();
    await checkIsOn(second, volume);
  });
});

describe('while a volume moves', () => {
  const beginMove = (id: string) => moves.beginVolume(id, first, second);

  it('room is reserved on both hosts, and the audit finds nothing', async () => {
    const volume = await volumeOn(first);
    await beginMove(volume.id);
    const { json } = await api('GET', `/v1/volumes/${volume.id}`);
    assert.equal(json.state, 'available');
    const reserved = await app.db.selectFrom('hosts').select(['id', 'reserved_disk_gb']).execute();
    assert.equal(reserved.find(({ id }) => id === hostIdOf(second))?.reserved_disk_gb, 7);
    await moves.recover();
    await checkIsOn(second, volume);
  });

  it('a delete ends the move, and leaves nothing on either host', async () => {
    for (const step of ['sendCopy', 'receiveCopy'] as const) {
      const volume = await volumeOn(first);
      const id = await beginMove(volume.id);
      const host = step === 'sendCopy' ? first : second;
      host.fault(step, 'answerLate', 1);
      const performing = moves.perform(app, id).catch((error: unknown) => error);
      await bed.settled(() => host.calls.some((call) => call.operation === step && call.machineId === volume.id));
      assert.equal((await api('DELETE', `/v1/volumes/${volume.id}`)).status, 204);
      host.heal();
      await performing;
      await moves.settled();
      assert.equal(await acts.rowOf(volume.id), undefined);
      for (const one of moves.hosts()) assert(!one.volumes.has(volume.id), step);
      await checkAll(bed);
    }
  });

  it('late calls of a move change nothing after the volume has come back (CTL-14)', async () => {
    const volume = await volumeOn(first);
    const before = [first.changeCount, second.changeCount] as const;
    await moves.perform(app, await beginMove(volume.id));
    await moves.recover();
    const machine = await machineOn(first);
    assert.equal((await acts.attach(volume.id, machine)).status, 200);
    await moves.settled();
    await acts.detach(volume.id);
    first.repeatChanges(before[0]);
    second.repeatChanges(before[1]);
    await checkIsOn(first, volume);
  });

  it('nothing else that needs the volume begins', async () => {
    const volume = await volumeOn(first);
    await beginMove(volume.id);
    await assert.rejects(moves.beginVolume(volume.id, first, third));
    await moves.recover();
    await checkIsOn(second, volume);
  });

  testEveryFate(bed, {
    make: () => volumeOn(first),
    begin: ({ id }) => beginMove(id),
    remove: ({ id }) => deleteVolume(app, bed.accountId, id),
  });
});
