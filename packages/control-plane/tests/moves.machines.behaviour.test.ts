// Tests of stopped machines that move to another host, and of hosts that are drained.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { destroyMachine } from '../src/machines/actions.ts';
import { lockMachine } from '../src/machines/store.ts';
import { beginMachineMove } from '../src/moves/begin.ts';
import { recountHost } from '../src/quotas/recount.ts';
import { callAdmin } from './support/admin.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import type { FakeHost } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { createMoveActs } from './support/moves.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs } from './support/volumes.ts';

const bed = await startTestBed({ remotes: [{}], timing: { claimTtlMs: 2_000, claimRenewMs: 300 } });
const { api, host: first, accountId } = bed;
const [second] = bed.remotes as [FakeHost];
const { app } = bed.plane;
const { db } = app;
const acts = createVolumeActs(bed);
const moves = createMoveActs(bed);
const hostIdOf = (host: FakeHost) => host.info.host_id;
const getMachine = async (id: string) => (await api('GET', `/v1/machines/${id}`)).json;
const rowOf = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

type Moved = { id: string; volume: string; disk: string; content: string };
/** Makes a stopped machine with a volume on the first host. */
const stoppedOnFirst = async (): Promise<Moved> => {
  await moves.openOnly(first);
  const id = await acts.makeStopped();
  const volume = await acts.attached(id, '/data');
  await moves.openOnly(first, second);
  const [disk, content] = [first.machines.get(id)?.disk, first.contents.get(volume)?.content];
  assert(disk && content);
  return { id, volume, disk, content };
};
/** Checks that only this host has the machine and its volume, with their contents, and that the rows say so. */
const checkIsOn = async (host: FakeHost, { id, volume, disk, content }: Moved) => {
  assert.equal((await rowOf(id)).host_id, hostIdOf(host));
  assert.equal((await acts.rowOf(volume))?.host_id, hostIdOf(host));
  for (const one of moves.hosts()) {
    assert.equal(one.machines.get(id)?.disk, one === host ? disk : undefined);
    assert.equal(one.contents.get(volume)?.content, one === host ? content : undefined);
  }
};
const admin = (path: string, body?: object) =>
  callAdmin<HostSummary & { hosts: HostSummary[] }>(app.config.adminSocket, `/admin/hosts${path}`, body);

afterEach(async () => {
  for (const host of moves.hosts()) {
    host.heal();
    host.lacksImages = false;
  }
  await moves.openOnly(first, second);
  await moves.settled();
  const { machines } = (await api('GET', '/v1/machines')).json;
  for (const { id } of machines) await api('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
  const { volumes } = (await api('GET', '/v1/volumes')).json;
  for (const { id } of volumes) assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
  await checkAll(bed);
});

describe('a stopped machine', () => {
  const beginMove = (id: string) =>
    moves.beginAside(async (tx) => {
      const machine = await lockMachine(tx, id);
      assert(machine);
      return beginMachineMove(app, tx, machine, { toHostId: hostIdOf(second), actor: 'system:operator' });
    });

  it('moves with its disk, its volume and the output of its jobs, and starts at its new host', async () => {
    await moves.openOnly(first);
    const id = await acts.makeMachine();
    const body = { command: 'print kept' };
    const job = (await api('POST', `/v1/machines/${id}/execs?wait_ms=5000`, { body })).json;
    await api('POST', `/v1/machines/${id}/stop`);
    await moves.openOnly(second);
    const disk = first.machines.get(id)?.disk;
    const operation = await beginMove(id);
    assert.equal((await getMachine(id)).operation.kind, 'move');
    await moves.perform(app, operation);
    await moves.settled();
    assert.equal(second.machines.get(id)?.disk, disk);
    assert(!first.machines.has(id));
    const started = await api('POST', `/v1/machines/${id}/start`);
    assert.equal(started.status, 200, started.text);
    assert.equal(second.machines.get(id)?.report.private_ip, started.json.private_ip);
    const output = await api('GET', `/v1/machines/${id}/execs/${job.id}/output?stream=stdout`);
    assert.equal(Buffer.from(output.json.data, 'base64').toString(), 'kept');
  });

  it('moves when it is started and its host has no room', async () => {
    const machine = await stoppedOnFirst();
    await sql`update hosts set reserved_memory_mb = 1000000 where id = ${hostIdOf(first)}`.execute(db);
    app.hostTable.expire();
    const started = await api('POST', `/v1/machines/${machine.id}/start`);
    await recountHost(app, hostIdOf(first));
    assert.equal(started.status, 200, started.text);
    await moves.settled();
    await checkIsOn(second, machine);
  });

  it('is deleted while it moves, and nothing is left on either host', async () => {
    for (const step of ['sendCopy', 'receiveCopy'] as const) {
      const machine = await stoppedOnFirst();
      const operation = await beginMove(machine.id);
      const host = step === 'sendCopy' ? first : second;
      host.fault(step, 'answerLate', 1);
      const performing = moves.perform(app, operation).catch((error: unknown) => error);
      await bed.settled(() => host.calls.some((call) => call.operation === step && call.machineId === machine.volume));
      assert.equal((await api('DELETE', `/v1/machines/${machine.id}`)).status, 200);
      host.heal();
      await performing;
      await moves.settled();
      assert(!first.machines.has(machine.id) && !second.machines.has(machine.id));
      assert.equal(first.contents.get(machine.volume)?.content, machine.content, 'its volume is available');
      assert(!second.volumes.has(machine.volume));
      await checkAll(bed);
    }
  });

  it('late calls of a move change nothing after it has come back (CTL-14)', async () => {
    const machine = await stoppedOnFirst();
    const before = [first.changeCount, second.changeCount] as const;
    await moves.perform(app, await beginMove(machine.id));
    await moves.settled();
    const back = await moves.beginAside(async (tx) => {
      const row = await lockMachine(tx, machine.id);
      assert(row);
      return beginMachineMove(app, tx, row, { toHostId: hostIdOf(first), actor: 'user' });
    });
    await moves.perform(app, back);
    await moves.settled();
    first.repeatChanges(before[0]);
    second.repeatChanges(before[1]);
    await checkIsOn(first, machine);
  });

  const FATES: Fate[] = ['dies', 'loses the answer'];
  const ENDS: [string, ServiceError | undefined, FakeHost][] = [
    ['succeeds', undefined, second],
    ['is refused', new ServiceError('conflict', 'The host lacks the image.'), first],
  ];
  for (const fate of FATES) {
    for (const [name, refusal, end] of ENDS) {
      it(`the process of a move that ${name} ${fate} at any step: one host has it, and it ends (CTL-14)`, async () => {
        for (let at = 1, goesOn = true; goesOn; at++) {
          const machine = await stoppedOnFirst();
          const id = await beginMove(machine.id);
          if (refusal) second.fault('receiveCopy', refusal);
          goesOn = await runWithFate(app, { fate, at }, (own) => moves.perform(own, id));
          const { host_id } = await rowOf(machine.id);
          assert.equal(moves.hostOf(host_id).machines.get(machine.id)?.disk, machine.disk, `step ${at}`);
          assert.equal(moves.hostOf(host_id).contents.get(machine.volume)?.content, machine.content, `step ${at}`);
          await moves.recover();
          await checkIsOn(end, machine);
          second.heal();
          await destroyMachine(app, accountId, machine.id);
          await api('DELETE', `/v1/volumes/${machine.volume}`);
        }
        await checkAll(bed);
      });
    }
  }
});

describe('a host that is drained', () => {
  it('gives away what can move, says why the rest stays, and can be removed in the end', async () => {
    await moves.openOnly(second);
    const [running, withSnapshot] = [await acts.makeMachine(), await acts.makeMachine()];
    const snapshot = (await api('POST', `/v1/machines/${withSnapshot}/snapshots`)).json.id;
    await api('POST', `/v1/machines/${withSnapshot}/stop`);
    const stopped = await acts.makeStopped();
    const attached = await acts.attached(stopped, '/data');
    const volumes: string[] = [];
    for (let index = 0; index < 6; index++) volumes.push(await acts.makeVolume());
    await moves.openOnly(first, second);

    const id = hostIdOf(second);
    const { json } = await admin(`/${id}/drain`, {});
    assert.equal(json.state, 'draining');
    assert.equal(json.remaining?.length, 9);
    const left = async () => (await admin('')).json.hosts.find((host) => host.id === id)?.remaining ?? [];
    await bed.settled(async () => (await left()).length === 2);
    const reasons = Object.fromEntries((await left()).map((one) => [one.id, one.why]));
    assert.match(reasons[running] ?? '', /It is running/);
    assert.match(reasons[withSnapshot] ?? '', /snapshots/);
    assert.equal((await admin(`/${id}/remove`, {})).status, 409);
    for (const volume of [...volumes, attached]) assert(first.volumes.has(volume));
    assert(first.machines.has(stopped));

    await api('POST', `/v1/machines/${running}/stop`);
    await api('DELETE', `/v1/snapshots/${snapshot}`);
    await moves.settled();
    await bed.settled(async () => (await left()).length === 0);
    await moves.settled();
    assert.deepEqual([second.machines.size, second.volumes.size], [0, 0]);
    for (const machine of [running, withSnapshot, stopped])
      assert.equal((await api('POST', `/v1/machines/${machine}/start`)).status, 200);
    await moves.openOnly(first, second);
  });

  it('that has only stopped machines can be removed', async () => {
    const third = await bed.addRemote();
    const id = hostIdOf(third);
    await bed.settled(() => app.hosts.listenedIds().includes(id));
    await moves.openOnly(third);
    const machine = await acts.makeStopped();
    await moves.openOnly(first, second, third);
    await admin(`/${id}/drain`, {});
    await bed.settled(async () => (await admin(`/${id}/remove`, {})).status === 200);
    assert.equal(third.machines.size, 0);
    assert.equal((await api('POST', `/v1/machines/${machine}/start`)).status, 200);
  });

  it('keeps what no other host takes, and says what the other host said', async () => {
    await moves.openOnly(second);
    const stopped = await acts.makeStopped();
    await moves.openOnly(first, second);
    first.lacksImages = true;
    const id = hostIdOf(second);
    await admin(`/${id}/drain`, {});
    const why = async () => (await admin('')).json.hosts.find((host) => host.id === id)?.remaining?.[0]?.why ?? '';
    await bed.settled(async () => /lacks the image/.test(await why()) && !/moving/.test(await why()));
    assert.equal((await getMachine(stopped)).state, 'stopped');
    assert.equal((await rowOf(stopped)).host_id, id);
    assert(second.machines.has(stopped));
  });
});
