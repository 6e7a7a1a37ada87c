// Tests of stopped machines that move to another host, and of hosts that are drained.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { audit } from '../src/audit/audit.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { destroyMachine } from '../src/machines/actions.ts';
import { removeCopies } from '../src/moves/copies.ts';
import { recountHost } from '../src/quotas/recount.ts';
import { emptyDraining } from '../src/reconcilers/drain.ts';
import { beginDeleteSnapshot } from '../src/snapshots/destroy.ts';
import { callAdmin } from './support/admin.ts';
import type { FakeHost } from './support/fake-host.ts';
import { checkAll } from './support/in-order.ts';
import { contentOn, createMoveActs, hostIdOf, testEveryFate } from './support/moves.ts';
import { holdRow } from './support/row-locks.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs } from './support/volumes.ts';

const bed = await startTestBed({ remotes: [{}], timing: { claimTtlMs: 2_000, claimRenewMs: 300 } });
const { api, host: first, accountId } = bed;
const [second] = bed.remotes as [FakeHost];
const { app } = bed.plane;
const { db } = app;
const acts = createVolumeActs(bed);
const moves = createMoveActs(bed);
const getMachine = async (id: string) => (await api('GET', `/v1/machines/${id}`)).json;
const rowOf = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

type Moved = { id: string; volume: string; snapshot: string; contents: Record<string, string> };
const takeSnapshot = async (id: string, body: object = {}): Promise<string> =>
  (await api('POST', `/v1/machines/${id}/snapshots`, { body })).json.id;
const snapshotHost = async (id: string) =>
  (await db.selectFrom('snapshots').select('host_id').where('id', '=', id).executeTakeFirst())?.host_id;
/** Makes a stopped machine with a volume and a snapshot on the first host. */
const stoppedOnFirst = async (): Promise<Moved> => {
  await moves.openOnly(first);
  const id = await acts.makeStopped();
  const volume = await acts.attached(id, '/data');
  const snapshot = await takeSnapshot(id);
  await moves.openOnly(first, second);
  const [disk, content] = [contentOn(first, id), contentOn(first, volume)];
  assert(disk && content);
  return { id, volume, snapshot, contents: { [id]: disk, [volume]: content, [snapshot]: snapshot } };
};
/** Checks that only this host has the machine, its volume and its snapshot, and that the rows say so. */
const checkIsOn = async (host: FakeHost, { contents }: Moved) => {
  for (const [id, content] of Object.entries(contents)) await moves.checkIsOn(host, id, content);
};
const admin = (path: string, body?: object) =>
  callAdmin<HostSummary & { hosts: HostSummary[] }>(app.config.adminSocket, `/admin/hosts${path}`, body);

afterEach(moves.cleanUp);

describe('a stopped machine', () => {
  const beginMove = (id: string) => moves.beginMachine(id, second);

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
      assert.equal((await api('DELETE', `/v1/machines/${machine.id}?delete_snapshots=true`)).status, 200);
      host.heal();
      await performing;
      await moves.settled();
      assert(!first.machines.has(machine.id) && !second.machines.has(machine.id));
      await moves.checkIsOn(first, machine.volume, machine.contents[machine.volume]);
      assert(!first.snapshots.has(machine.snapshot) && !second.snapshots.has(machine.snapshot));
      await checkAll(bed);
    }
  });

  it('late calls of a move change nothing after it has come back (CTL-14)', async () => {
    const machine = await stoppedOnFirst();
    const before = [first.changeCount, second.changeCount] as const;
    await moves.perform(app, await beginMove(machine.id));
    await moves.settled();
    await moves.perform(app, await moves.beginMachine(machine.id, first));
    await moves.settled();
    first.repeatChanges(before[0]);
    second.repeatChanges(before[1]);
    await checkIsOn(first, machine);
  });

  /** Moves a machine until everything is on the second host. That host does not answer before `second.heal`. */
  const moveUntilAnswer = async (machine: Moved) => {
    const operation = await beginMove(machine.id);
    second.fault('receiveCopy', 'answerLate', 1);
    const performing = { ended: moves.perform(app, operation) };
    await bed.settled(() => second.volumes.has(machine.volume));
    second.fault('receiveCopy', 'answerLate', 1);
    second.release();
    await bed.settled(() => second.snapshots.has(machine.snapshot));
    return performing;
  };

  it('with snapshots is restored at its new host, and machines are made from them there', async () => {
    const machine = await stoppedOnFirst();
    await moves.perform(app, await beginMove(machine.id));
    await moves.settled();
    await checkIsOn(second, machine);
    const restored = await api('POST', `/v1/snapshots/${machine.snapshot}/restore`);
    assert.equal(restored.status, 200, restored.text);
    assert.equal(second.machines.get(machine.id)?.restores.at(-1)?.snapshotId, machine.snapshot);
    const body = { snapshot_id: machine.snapshot };
    const made = await api('POST', '/v1/machines', { body });
    assert.equal(made.status, 201, made.text);
    assert(second.machines.has(made.json.id));
    const listed = (await api('GET', `/v1/machines/${machine.id}/snapshots`)).json.snapshots;
    assert.deepEqual(
      listed.map((one: { id: string }) => one.id),
      [machine.snapshot],
    );
  });

  it('stays where it is when a snapshot did not arrive', async () => {
    for (const older of [first, second]) {
      older.leavesSnapshots = true;
      const machine = await stoppedOnFirst();
      await assert.rejects(moves.perform(app, await beginMove(machine.id)), /was not sent/);
      older.leavesSnapshots = false;
      await moves.settled();
      await checkIsOn(first, machine);
    }
  });

  it('loses no snapshot, and its snapshot is deleted when the move has ended', async () => {
    const machine = await stoppedOnFirst();
    const performing = await moveUntilAnswer(machine);
    const deleting = api('DELETE', `/v1/snapshots/${machine.snapshot}`);
    // The move is over the request, which waits: nothing is deleted at the old host.
    const isRefused = await inTransaction(db, (tx) =>
      beginDeleteSnapshot(app, tx, { id: machine.snapshot, account_id: accountId }, 'user'),
    ).catch((error: unknown) => error);
    assert(isRefused instanceof ServiceError && isRefused.code === 'conflict');
    assert(first.snapshots.has(machine.snapshot));
    second.heal();
    await performing.ended;
    assert.equal((await deleting).status, 204);
    await moves.settled();
    for (const host of moves.hosts()) assert(!host.snapshots.has(machine.snapshot));
  });

  it('leaves its snapshots on the old host until machines have been made from them', async () => {
    const machine = await stoppedOnFirst();
    first.fault('ensure', 'hang', 1);
    const body = { snapshot_id: machine.snapshot };
    const creating = api('POST', '/v1/machines', { body });
    await bed.settled(() =>
      first.calls.some((call) => call.operation === 'ensure' && !first.machines.has(call.machineId)),
    );
    await moves.perform(app, await beginMove(machine.id));
    await bed.settled(async () =>
      (await moves.unfinished()).some((one) => /still being made/.test(one.last_error ?? '')),
    );
    assert(first.snapshots.has(machine.snapshot));
    first.heal();
    const made = await creating;
    assert.equal(made.status, 201, made.text);
    assert(first.machines.has(made.json.id));
    await moves.settled();
    await checkIsOn(second, machine);
  });

  it('keeps its snapshots on a host that their rows name, although a copy is to be removed there', async () => {
    const machine = await stoppedOnFirst();
    const { generation } = await rowOf(machine.id);
    // As when a replica of an earlier version records a move: it changes the row of the machine only.
    const copy = { kind: 'machine', id: machine.id, generation: generation + 1, disk_gb: 1 } as const;
    await inTransaction(db, (tx) =>
      removeCopies(tx, { account_id: accountId, actor: 'user' }, hostIdOf(first), [copy]),
    );
    const removal = async () => (await moves.unfinished()).find(({ kind }) => kind === 'remove_copy');
    await bed.settled(async () => /still here/.test((await removal())?.last_error ?? ''));
    await checkIsOn(first, machine);
    await db
      .deleteFrom('operations')
      .where('id', '=', (await removal())?.id ?? '')
      .execute();
  });

  it('leaves its snapshots to a create that is older than the removal of its copy, and to no later one', async () => {
    const machine = await stoppedOnFirst();
    await moves.openOnly(first);
    first.fault('ensure', 'hang', 1);
    const creating = api('POST', '/v1/machines', { body: { snapshot_id: machine.snapshot } });
    await bed.settled(() =>
      first.calls.some(({ operation, machineId }) => operation === 'ensure' && !first.machines.has(machineId)),
    );
    await moves.openOnly(first, second);
    await moves.perform(app, await beginMove(machine.id));
    await db
      .updateTable('operations')
      .set({ created_at: sql`now() + interval '1 hour'` })
      .where('kind', '=', 'create')
      .where('finished_at', 'is', null)
      .execute();
    await bed.settled(() => !first.snapshots.has(machine.snapshot));
    first.heal();
    await creating;
  });

  it('is not taken away from a create that chooses the host of its snapshot at the same moment', async () => {
    const machine = await stoppedOnFirst();
    // The last transaction of a move locks the row like this.
    const moving = await holdRow(bed.databaseUrl, 'snapshots', machine.snapshot);
    const creating = api('POST', '/v1/machines', { body: { snapshot_id: machine.snapshot } });
    await moving.isWaitedFor(1);
    await moving.release();
    const made = await creating;
    assert.equal(made.status, 201, made.text);
  });

  it('is no finding of the audit while its snapshots are on two hosts', async () => {
    const machine = await stoppedOnFirst();
    const performing = await moveUntilAnswer(machine);
    const { findings } = await audit(app);
    assert.deepEqual(findings, []);
    second.heal();
    await performing.ended;
    await moves.settled();
  });

  testEveryFate(bed, {
    make: stoppedOnFirst,
    begin: ({ id }) => beginMove(id),
    remove: async ({ id, volume }) => {
      await destroyMachine(app, accountId, id, { deleteSnapshots: true });
      await api('DELETE', `/v1/volumes/${volume}`);
    },
  });
});

describe('a host that is drained', () => {
  it('gives away what can move, says why the rest stays, and can be removed in the end', async () => {
    await moves.openOnly(second);
    const [running, withLost] = [await acts.makeMachine(), await acts.makeMachine()];
    const snapshot = await takeSnapshot(withLost);
    await api('POST', `/v1/machines/${withLost}/stop`);
    second.snapshots.delete(snapshot);
    await bed.settled(async () => (await api('GET', `/v1/snapshots/${snapshot}`)).json.state === 'error');
    const withSnapshot = await acts.makeStopped();
    const moved = await takeSnapshot(withSnapshot);
    const stopped = await acts.makeStopped();
    const attached = await acts.attached(stopped, '/data');
    const volumes: string[] = [];
    for (let index = 0; index < 6; index++) volumes.push(await acts.makeVolume());
    await moves.openOnly(first, second);

    const id = hostIdOf(second);
    const { json } = await admin(`/${id}/drain`, {});
    assert.equal(json.state, 'draining');
    assert.equal(json.remaining?.length, 10);
    const left = async () => (await admin('')).json.hosts.find((host) => host.id === id)?.remaining ?? [];
    await bed.settled(async () => (await left()).length === 2);
    const reasons = Object.fromEntries((await left()).map((one) => [one.id, one.why]));
    assert.match(reasons[running] ?? '', /It is running/);
    assert.match(reasons[withLost] ?? '', /snapshot .* is in error: delete it first/);
    assert(first.snapshots.has(moved) && !second.snapshots.has(moved));
    assert.equal((await admin(`/${id}/remove`, {})).status, 409);
    for (const volume of [...volumes, attached]) assert(first.volumes.has(volume));
    assert(first.machines.has(stopped));

    await api('POST', `/v1/machines/${running}/stop`);
    await api('DELETE', `/v1/snapshots/${snapshot}`);
    await moves.settled();
    await bed.settled(async () => (await left()).length === 0);
    await moves.settled();
    assert.deepEqual([second.machines.size, second.volumes.size], [0, 0]);
    for (const machine of [running, withLost, withSnapshot, stopped])
      assert.equal((await api('POST', `/v1/machines/${machine}/start`)).status, 200);
    await moves.openOnly(first, second);
  });

  it('gives a machine with a memory snapshot to a host with the same processor only', async () => {
    const id = hostIdOf(second);
    /** The row says so when the host has been asked for its facts again. */
    const setProcessor = async (host: FakeHost, processor: string) => {
      host.info.processor = processor;
      const isNoted = db.selectFrom('hosts').select('id').where('id', '=', hostIdOf(host));
      const query = isNoted.where('processor', '=', processor);
      await bed.settled(async () => (await query.executeTakeFirst()) !== undefined);
      app.hostTable.expire();
    };
    await moves.openOnly(second);
    const machine = await acts.makeMachine();
    const snapshot = await takeSnapshot(machine, { memory: true });
    await api('POST', `/v1/machines/${machine}/stop`);
    await setProcessor(first, 'another');
    await setProcessor(second, 'one');
    await moves.openOnly(first, second);
    await admin(`/${id}/drain`, {});
    const why = async () => (await admin('')).json.hosts.find((host) => host.id === id)?.remaining?.[0]?.why ?? '';
    assert.match(await why(), /processor of its memory snapshots/);
    await emptyDraining(app);
    assert.deepEqual(await moves.unfinished(), []);
    await setProcessor(first, 'one');
    await bed.settled(async () => (await snapshotHost(snapshot)) === hostIdOf(first));
    await moves.settled();
    assert(first.machines.has(machine) && first.snapshots.has(snapshot) && !second.snapshots.has(snapshot));
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
