// Tests of snapshots: which requests are allowed in which state, that another account cannot see them, and that each
// exists completely or not at all.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { sql } from 'kysely';
import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import type { Fault, Operation } from './support/fake-host/calls.ts';
import { checkAll } from './support/in-order.ts';
import { isBusy, leaveOperation } from './support/operations.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 } });
const { api, host, keys, accountId } = bed;
const { db } = bed.plane.app;

const create = async (body: object = {}, key = keys.full): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { key, body: { memory_mb: 128, ...body } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const stop = async (id: string): Promise<string> => {
  assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
  return id;
};
const snap = async (machineId: string, body: object = {}, key = keys.full): Promise<string> => {
  const answer = await api<Snapshot>('POST', `/v1/machines/${machineId}/snapshots`, { key, body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const destroy = (id: string) => api('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
const rowOf = (id: string) => db.selectFrom('snapshots').selectAll().where('id', '=', id).executeTakeFirst();
const machineOf = async (id: string) => (await api('GET', `/v1/machines/${id}`)).json;
const listIds = async (path: string): Promise<string[]> => {
  const answer = await api('GET', path);
  assert.equal(answer.status, 200, answer.text);
  return answer.json.snapshots.map((snapshot: Snapshot) => snapshot.id);
};
const actionsOf = async (machineId: string): Promise<string[]> =>
  (await api('GET', `/v1/machines/${machineId}/activity`)).json.activity.map(
    (entry: { action: string }) => entry.action,
  );
/** Sends a request whose host call hangs, and returns once the host has received the call. */
async function underWay(operation: Operation, ask: () => Promise<unknown>, fault: Fault = 'hang'): Promise<void> {
  const before = host.callsOf(operation);
  host.fault(operation, fault, 1);
  void ask().catch(() => undefined);
  await bed.settled(() => host.callsOf(operation) > before);
}

afterEach(async () => {
  host.heal();
  const { json } = await api('GET', '/v1/machines');
  for (const { id } of json.machines) await destroy(id);
  await bed.settled(async () => (await api('GET', '/v1/machines')).json.machines.length === 0);
  await checkAll(bed);
});

describe('POST /v1/machines/{id}/snapshots', () => {
  it('answers 201 with the snapshot and writes one entry with its id alone', async () => {
    const machine = await create({ rootfs_size_gb: 12 });
    const answer = await api('POST', `/v1/machines/${machine}/snapshots`, { body: { name: 'a secret name' } });
    assert.equal(answer.status, 201, answer.text);
    const { id, created_at, ...rest } = answer.json;
    assert.match(created_at, /^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/);
    assert.deepEqual(rest, {
      account_id: accountId,
      machine_id: machine,
      name: 'a secret name',
      kind: 'disk',
      size_gb: 12,
      stored_bytes: 4_000_000,
      state: 'ready',
      error: null,
    });
    assert.deepEqual((await api('GET', `/v1/snapshots/${id}`)).json, answer.json);
    const { activity } = (await api('GET', `/v1/machines/${machine}/activity?category=snapshot`)).json;
    assert.equal(activity.length, 1);
    const [{ action, actor, metadata, machine_id }] = activity;
    assert.deepEqual([action, actor, metadata, machine_id], ['snapshot.created', 'user', { snapshot_id: id }, machine]);
    assert(!(await isBusy(db, machine)));
  });

  it('takes no body as well, and is not counted by storage_gb', async () => {
    const machine = await create();
    const used = async () => (await api('GET', '/v1/quotas')).json.quotas;
    const before = await used();
    assert.equal((await api('POST', `/v1/machines/${machine}/snapshots`)).status, 201);
    assert.deepEqual(await used(), before);
  });

  it('is allowed of a stopped machine, for its disk; memory is of a running one only', async () => {
    const machine = await stop(await create());
    assert.ok(await snap(machine));
    const answer = await api('POST', `/v1/machines/${machine}/snapshots`, { body: { memory: true } });
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.match(answer.json.detail, /The machine is stopped; .* needs it running\./);
  });

  it('keeps memory of a running machine when asked to', async () => {
    const { json } = await api('POST', `/v1/machines/${await create()}/snapshots`, { body: { memory: true } });
    assert.deepEqual([json.kind, json.stored_bytes], ['memory', 300_000_000]);
  });

  it('with memory is a 409 while the machine has a volume; without it is not', async () => {
    const machine = await create();
    const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    assert.equal((await api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: machine } })).status, 200);
    const taken = host.callsOf('takeSnapshot');
    const answer = await api('POST', `/v1/machines/${machine}/snapshots`, { body: { memory: true } });
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.match(answer.json.detail, /detach them first/);
    assert.equal(host.callsOf('takeSnapshot'), taken, 'the host was not asked');
    assert.ok(await snap(machine));
    assert.equal((await api('POST', `/v1/volumes/${volume}/detach`)).status, 200);
    assert.equal((await api('DELETE', `/v1/volumes/${volume}`)).status, 204);
  });

  it('is a 409 of a machine in error or destroyed, and the latter’s list is empty', async () => {
    const machine = await create();
    host.end(machine, 'failed', 'It died.');
    await bed.settled(async () => (await machineOf(machine)).state === 'error');
    const answer = await api('POST', `/v1/machines/${machine}/snapshots`);
    assert.deepEqual(
      [answer.status, answer.json.detail],
      [409, 'The machine is error; snapshot needs it running or stopped.'],
    );
    await destroy(machine);
    assert.equal((await api('POST', `/v1/machines/${machine}/snapshots`)).status, 409);
    assert.deepEqual(await listIds(`/v1/machines/${machine}/snapshots`), []);
  });

  it('refuses what is no such body', async () => {
    const machine = await create();
    for (const body of [{ nmae: 'x' }, { memory: 'yes' }, { name: 'x'.repeat(256) }, { name: 1 }]) {
      const answer = await api('POST', `/v1/machines/${machine}/snapshots`, { body });
      assert.deepEqual([answer.status, answer.json.code], [400, 'validation_error'], JSON.stringify(body));
    }
    assert.deepEqual(await listIds('/v1/snapshots'), []);
  });

  it('of many at once, on two replicas, all are taken, one after the other', async () => {
    const machine = await create();
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, index) =>
        api('POST', `/v1/machines/${machine}/snapshots`, { plane: bed.replicas[index % 2] ?? bed.plane }),
      ),
    );
    assert.deepEqual(
      answers.map((answer) => answer.status),
      Array(6).fill(201),
    );
    assert.equal((await listIds(`/v1/machines/${machine}/snapshots`)).length, 6);
  });

  it('shows nothing before the host has it', async () => {
    const machine = await create();
    await underWay('takeSnapshot', () => api('POST', `/v1/machines/${machine}/snapshots`));
    const row = await db.selectFrom('snapshots').selectAll().executeTakeFirstOrThrow();
    assert.equal(row.state, 'creating');
    assert.deepEqual(await listIds('/v1/snapshots'), []);
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/restore'],
    ] as const) {
      assert.equal((await api(method, `/v1/snapshots/${row.id}${path}`)).status, 404, method);
    }
    host.heal();
    await bed.settled(async () => (await listIds('/v1/snapshots')).length === 1);
  });

  it('says what the host refused with, and leaves nothing', async () => {
    const machine = await create();
    host.fault('takeSnapshot', new ServiceError('fleet_capacity', 'The disk of the host is full.'), 1);
    const answer = await api('POST', `/v1/machines/${machine}/snapshots`);
    assert.deepEqual([answer.status, answer.json.detail], [503, 'The disk of the host is full.']);
    assert.equal(await db.selectFrom('snapshots').select('id').executeTakeFirst(), undefined);
    assert.deepEqual(await actionsOf(machine), ['machine.created']);
    assert.equal((await machineOf(machine)).state, 'running');
  });
});

describe('GET of snapshots', () => {
  it('lists an account’s and a machine’s, newest first, with filters', async () => {
    const [first, second] = [await create(), await create()];
    const a = await snap(first);
    const b = await snap(second, { memory: true });
    const c = await snap(first);
    assert.deepEqual(await listIds('/v1/snapshots'), [c, b, a]);
    assert.deepEqual(await listIds(`/v1/machines/${first}/snapshots`), [c, a]);
    assert.deepEqual(await listIds('/v1/snapshots?kind=memory'), [b]);
    assert.deepEqual(await listIds('/v1/snapshots?kind=disk&state=ready'), [c, a]);
    assert.deepEqual(await listIds('/v1/snapshots?state=error'), []);
    assert.deepEqual(await listIds(`/v1/machines/${first}/snapshots?kind=memory`), []);
    for (const query of ['?kind=tape', '?state=gone', '?page_size=0', '?machine=x']) {
      assert.equal((await api('GET', `/v1/snapshots${query}`)).json.code, 'validation_error', query);
    }
  });

  it('pages, and cursors are of one list only', async () => {
    const machine = await create();
    const ids = [await snap(machine), await snap(machine), await snap(machine)].reverse();
    const first = (await api('GET', '/v1/snapshots?page_size=2')).json;
    const second = (await api('GET', `/v1/snapshots?page_size=2&cursor=${first.next_cursor}`)).json;
    assert.deepEqual(
      [...first.snapshots, ...second.snapshots].map((snapshot: Snapshot) => snapshot.id),
      ids,
    );
    assert.equal(second.next_cursor, '');
    for (const path of ['/v1/snapshots?kind=disk&', `/v1/machines/${machine}/snapshots?`, '/v1/machines?']) {
      assert.equal((await api('GET', `${path}cursor=${first.next_cursor}`)).status, 400, path);
    }
    assert.equal((await api('GET', `/v1/snapshots?cursor=${first.next_cursor}`, { key: keys.other })).status, 400);
  });

  it('is for a read key; changes are not', async () => {
    const machine = await create();
    const id = await snap(machine);
    const key = keys.read;
    for (const path of ['/v1/snapshots', `/v1/snapshots/${id}`, `/v1/machines/${machine}/snapshots`]) {
      assert.equal((await api('GET', path, { key })).status, 200, path);
      assert.equal((await api('GET', path, { key: null })).status, 401, path);
    }
    for (const [method, path] of [
      ['POST', `/v1/machines/${machine}/snapshots`],
      ['POST', `/v1/snapshots/${id}/restore`],
      ['DELETE', `/v1/snapshots/${id}`],
    ] as const) {
      assert.deepEqual((await api(method, path, { key })).json.code, 'forbidden', path);
    }
  });

  it("another account's snapshot and machine are absent in every way", async () => {
    const machine = await create();
    const id = await snap(machine);
    const key = keys.other;
    assert.deepEqual((await api('GET', '/v1/snapshots', { key })).json, { snapshots: [] });
    for (const [method, path] of [
      ['GET', '/v1/snapshots/ID'],
      ['DELETE', '/v1/snapshots/ID'],
      ['POST', '/v1/snapshots/ID/restore'],
    ] as const) {
      const foreign = await api(method, path.replace('ID', id), { key });
      const absent = await api(method, path.replace('ID', randomUUID()), { key });
      assert.deepEqual([foreign.status, foreign.json], [404, absent.json], path);
    }
    for (const method of ['GET', 'POST']) {
      const foreign = await api(method, `/v1/machines/${machine}/snapshots`, { key });
      const absent = await api(method, `/v1/machines/${randomUUID()}/snapshots`, { key });
      assert.deepEqual([foreign.status, foreign.json], [404, absent.json], method);
    }
    assert.equal((await rowOf(id))?.state, 'ready');
  });
});

describe('DELETE /v1/snapshots/{id}', () => {
  it('answers 204, removes it and writes one entry', async () => {
    const machine = await create();
    const id = await snap(machine);
    const answer = await api('DELETE', `/v1/snapshots/${id}`);
    assert.deepEqual([answer.status, answer.text], [204, '']);
    assert.deepEqual([host.snapshots.has(id), await rowOf(id)], [false, undefined]);
    assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 404);
    assert.deepEqual(await actionsOf(machine), ['snapshot.deleted', 'snapshot.created', 'machine.created']);
  });

  it('of many at once, on two replicas, is done once, and each gets its result', async () => {
    const machine = await create();
    const id = await snap(machine);
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        api('DELETE', `/v1/snapshots/${id}`, { plane: bed.replicas[index % 2] ?? bed.plane }),
      ),
    );
    const statuses = answers.map((answer) => answer.status);
    // A delete that arrives after the snapshot is gone gets 404.
    assert(statuses.includes(204) && statuses.every((status) => status === 204 || status === 404), statuses.join());
    assert.equal((await actionsOf(machine)).filter((action) => action === 'snapshot.deleted').length, 1);
  });

  it('while its machine goes back to it waits for the end of that', async () => {
    const machine = await create();
    const id = await snap(machine);
    await underWay('ensure', () => api('POST', `/v1/snapshots/${id}/restore`));
    const deleting = api('DELETE', `/v1/snapshots/${id}`);
    assert.equal((await api('GET', `/v1/snapshots/${id}`)).json.state, 'ready');
    host.heal();
    assert.equal((await deleting).status, 204);
    assert.deepEqual((await actionsOf(machine)).slice(0, 2), ['snapshot.deleted', 'snapshot.restored']);
  });

  it('while the host is away is 503, absent at once, and finished when the host is there again', async () => {
    const machine = await create();
    const id = await snap(machine);
    await host.away();
    await bed.settled(() => bed.replicas.every((replica) => replica.app.hosts.reachableIds().length === 0));
    const answer = await api('DELETE', `/v1/snapshots/${id}`);
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    assert.ok(answer.headers.get('retry-after'));
    assert.equal((await api('GET', `/v1/snapshots/${id}`)).status, 404);
    assert.deepEqual(await listIds('/v1/snapshots'), []);
    await host.listen();
    await bed.settled(async () => (await rowOf(id)) === undefined);
    assert(!host.snapshots.has(id));
  });
});

describe('POST /v1/snapshots/{id}/restore', () => {
  it('brings a running machine back, running, with its jobs lost and one entry', async () => {
    const machine = await create();
    const id = await snap(machine);
    const job = (await api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } })).json.id;
    const before = host.machines.get(machine)?.report.generation ?? 0;
    // The host cannot be asked for the end of the job, so the service cannot learn its exit code.
    host.fault('getJob', 'fail');
    const answer = await api('POST', `/v1/snapshots/${id}/restore`);
    host.heal();
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual([answer.json.id, answer.json.state], [machine, 'running']);
    assert.deepEqual(host.machines.get(machine)?.restores, [{ snapshotId: id, generation: before + 1 }]);
    assert.equal((await api('GET', `/v1/machines/${machine}/execs/${job}`)).json.status, 'lost');
    assert.deepEqual(await actionsOf(machine), ['snapshot.restored', 'exec', 'snapshot.created', 'machine.created']);
    const [entry] = (await api('GET', `/v1/machines/${machine}/activity`)).json.activity;
    assert.deepEqual([entry.actor, entry.metadata], ['user', { snapshot_id: id }]);
    assert(!(await isBusy(db, machine)));
  });

  it('leaves a stopped machine stopped, and a start later does not go back again', async () => {
    const machine = await create();
    const id = await snap(machine);
    await stop(machine);
    const answer = await api('POST', `/v1/snapshots/${id}/restore`);
    assert.deepEqual([answer.status, answer.json.state], [200, 'stopped']);
    assert.equal((await api('POST', `/v1/machines/${machine}/start`)).status, 200);
    assert.equal(host.machines.get(machine)?.restores.length, 1);
    assert.equal(host.machines.get(machine)?.wanted.restore_snapshot_id, undefined);
  });

  it('keeps its volumes attached', async () => {
    const machine = await create();
    const id = await snap(machine);
    const volume = (await api('POST', '/v1/volumes', { body: { size_gb: 5 } })).json.id;
    assert.equal((await api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: machine } })).status, 200);
    assert.equal((await api('POST', `/v1/snapshots/${id}/restore`)).status, 200);
    assert.deepEqual(
      host.machines.get(machine)?.wanted.volumes?.map(({ volume_id }) => volume_id),
      [volume],
    );
    assert.equal((await api('GET', `/v1/volumes/${volume}`)).json.state, 'attached');
    assert.equal((await api('POST', `/v1/volumes/${volume}/detach`)).status, 200);
    assert.equal((await api('DELETE', `/v1/volumes/${volume}`)).status, 204);
  });

  it('that the host refuses leaves the machine as it was, without an entry', async () => {
    const machine = await create();
    const id = await snap(machine);
    const job = (await api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } })).json.id;
    host.fault('ensure', new ServiceError('fleet_capacity', 'The disk of the host is full.'), 1);
    const answer = await api('POST', `/v1/snapshots/${id}/restore`);
    assert.deepEqual([answer.status, answer.json.detail], [503, 'The disk of the host is full.']);
    assert.equal((await machineOf(machine)).state, 'running');
    assert.equal((await api('GET', `/v1/machines/${machine}/execs/${job}`)).json.status, 'running');
    assert.deepEqual(await actionsOf(machine), ['snapshot.created', 'machine.created']);
    assert.deepEqual(host.machines.get(machine)?.restores, []);
    assert.equal((await api('POST', `/v1/snapshots/${id}/restore`)).status, 200);
  });

  it('into what does not boot is a failure, and the machine is stopped', async () => {
    const machine = await create();
    const id = await snap(machine);
    await underWay('ensure', () => api('POST', `/v1/snapshots/${id}/restore`), 'hangThenFail');
    const known = host.machines.get(machine);
    assert(known);
    known.report = { ...known.report, status: 'failed', reason: 'It does not boot.' };
    host.heal();
    await bed.settled(async () => (await machineOf(machine)).state === 'stopped');
    assert(!(await isBusy(db, machine)));
    assert(!(await actionsOf(machine)).includes('snapshot.restored'));
    assert.equal((await api('POST', `/v1/machines/${machine}/start`)).status, 200);
  });

  it('with a host that is away is 503, and nothing happens later either', async () => {
    const machine = await create();
    const id = await snap(machine);
    await host.away();
    const answer = await api('POST', `/v1/snapshots/${id}/restore`);
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    await host.listen();
    await bed.settled(() => bed.plane.app.hosts.reachableIds().length === 1);
    await bed.plane.reconciler.runOnce();
    assert.deepEqual(host.machines.get(machine)?.restores, []);
    assert.deepEqual(await actionsOf(machine), ['snapshot.created', 'machine.created']);
  });

  it('with a host that did it and dropped the connection is finished by the reconciler, once', async () => {
    const machine = await create();
    const id = await snap(machine);
    host.fault('ensure', 'dropAfter', 2);
    const answer = await api('POST', `/v1/snapshots/${id}/restore`);
    assert.deepEqual([answer.status, answer.json.code], [503, 'host_unavailable']);
    await bed.settled(async () => (await actionsOf(machine))[0] === 'snapshot.restored');
    assert.equal(host.machines.get(machine)?.restores.length, 1);
  });

  it('that is half done does not stop a machine whose host tells that it ended for it', async () => {
    const machine = await create();
    const id = await snap(machine);
    host.fault('ensure', 'drop');
    assert.equal((await api('POST', `/v1/snapshots/${id}/restore`)).status, 503);
    const known = host.machines.get(machine);
    assert(known);
    known.report = { ...known.report, generation: known.report.generation + 1 };
    host.end(machine, 'stopped', null);
    const before = host.callsOf('list');
    await bed.settled(() => host.callsOf('list') > before + 6);
    assert.equal((await machineOf(machine)).state, 'running');
    host.heal();
    await bed.settled(async () => (await actionsOf(machine))[0] === 'snapshot.restored');
    assert.equal((await machineOf(machine)).state, 'running');
    assert.equal(host.machines.get(machine)?.report.status, 'running');
  });

  it('is not taken for an end of the machine by a report that its host made before', async () => {
    const machine = await create();
    const id = await snap(machine);
    host.fault('ensure', 'drop');
    assert.equal((await api('POST', `/v1/snapshots/${id}/restore`)).status, 503);
    const known = host.machines.get(machine);
    assert(known);
    known.report = { ...known.report, generation: known.report.generation + 1, status: 'stopped' };
    const before = host.callsOf('list');
    host.fault('list', 'answerLate');
    await bed.settled(() => host.callsOf('list') > before);
    host.fault('ensure', 'drop', 0);
    await bed.settled(async () => (await actionsOf(machine))[0] === 'snapshot.restored');
    host.heal();
    for (const replica of bed.replicas) await replica.reconciler.runOnce();
    assert.equal((await machineOf(machine)).state, 'running');
    assert.equal((await actionsOf(machine))[0], 'snapshot.restored');
  });

  it('that is half done is finished before anything else is done to the machine', async () => {
    const machine = await create();
    const id = await snap(machine);
    host.fault('ensure', 'dropAfter');
    assert.equal((await api('POST', `/v1/snapshots/${id}/restore`)).status, 503);
    const stopping = api('POST', `/v1/machines/${machine}/stop`);
    const before = host.callsOf('ensure');
    await bed.settled(() => host.callsOf('ensure') > before + 6);
    const { state, operation } = await machineOf(machine);
    assert.deepEqual([state, operation.kind], ['running', 'restore']);
    host.heal();
    assert.equal((await stopping).json.state, 'stopped');
    assert.deepEqual((await actionsOf(machine)).slice(0, 2), ['machine.stopped', 'snapshot.restored']);
    assert.equal(host.machines.get(machine)?.restores.length, 1);
  });

  it('is a 409 of a snapshot in error, and of a machine that is not running or stopped', async () => {
    const machine = await create();
    const id = await snap(machine);
    await db.updateTable('snapshots').set({ state: 'error', error: 'It broke.' }).where('id', '=', id).execute();
    const broken = await api('POST', `/v1/snapshots/${id}/restore`);
    assert.deepEqual([broken.status, broken.json.detail], [409, 'The snapshot is in error: It broke.']);
    await db.updateTable('snapshots').set({ state: 'ready', error: null }).where('id', '=', id).execute();
    host.end(machine, 'failed', 'It died.');
    await bed.settled(async () => (await machineOf(machine)).state === 'error');
    const answer = await api('POST', `/v1/snapshots/${id}/restore`);
    assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
    assert.deepEqual(host.machines.get(machine)?.restores, []);
  });
});

describe('DELETE /v1/machines/{id} with snapshots', () => {
  it('is a 409 and deletes nothing; with delete_snapshots=true they go first, and are counted', async () => {
    const machine = await create();
    const ids = [await snap(machine), await snap(machine)];
    for (const query of ['', '?delete_snapshots=false', '?preserve_storage=true']) {
      const answer = await api('DELETE', `/v1/machines/${machine}${query}`);
      assert.deepEqual([answer.status, answer.json.code], [409, 'conflict'], query);
      assert.match(answer.json.detail, /delete_snapshots=true/);
    }
    const { state, operation } = await machineOf(machine);
    assert.deepEqual([state, operation], ['running', null]);
    assert.equal(host.machines.get(machine)?.report.status, 'running');
    const before = host.calls.length;
    const answer = await destroy(machine);
    assert.deepEqual([answer.status, answer.json.state], [200, 'destroyed']);
    const changes = host.calls.slice(before).filter(({ operation }) => /^delete/.test(operation));
    assert.deepEqual(
      changes.map(({ operation }) => operation),
      ['deleteSnapshot', 'deleteSnapshot', 'delete'],
    );
    for (const id of ids) assert.equal((await api('GET', `/v1/snapshots/${id}`)).status, 404);
    assert.deepEqual((await actionsOf(machine)).slice(0, 3), [
      'machine.destroyed',
      'snapshot.deleted',
      'snapshot.deleted',
    ]);
    const [entry] = (await api('GET', `/v1/machines/${machine}/activity`)).json.activity;
    assert.deepEqual(entry.metadata, { preserve_storage: false, snapshots_deleted: 2 });
  });

  it('keeps the disk beside them when asked to', async () => {
    const machine = await create();
    await snap(machine);
    const answer = await api('DELETE', `/v1/machines/${machine}?delete_snapshots=true&preserve_storage=true`);
    assert.equal(answer.status, 200, answer.text);
    assert(host.volumes.has(answer.json.root_volume_id));
    const [entry] = (await api('GET', `/v1/machines/${machine}/activity`)).json.activity;
    assert.deepEqual(entry.metadata, { preserve_storage: true, snapshots_deleted: 1 });
    assert.equal((await api('DELETE', `/v1/volumes/${answer.json.root_volume_id}`)).status, 204);
  });

  it('is a 409 while the first one is being made', async () => {
    const machine = await create();
    const taking = () => api('POST', `/v1/machines/${machine}/snapshots`);
    await underWay('takeSnapshot', taking);
    assert.equal((await api('DELETE', `/v1/machines/${machine}`)).status, 409);
    host.heal();
    await bed.settled(async () => (await listIds('/v1/snapshots')).length === 1);
  });

  it('sees the snapshot whose row is written in the same moment', async () => {
    const [machine, id] = [await create(), uuidv7()];
    const other = new pg.Client({ connectionString: bed.databaseUrl });
    await other.connect();
    await other.query('begin');
    // Take the row lock that a snapshot takes when it begins, and do not commit yet.
    await other.query('select from machines where id = $1 for no key update', [machine]);
    const deleting = api('DELETE', `/v1/machines/${machine}`);
    const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
    await bed.settled(async () => (await other.query(waiting)).rowCount === 1);
    await other.query(
      `insert into snapshots (id, account_id, host_id, machine_id, kind, size_gb, stack, vcpus, memory_mb, state)
       select $2, account_id, host_id, id, 'disk', 10, stack, vcpus, memory_mb, 'creating' from machines where id = $1`,
      [machine, id],
    );
    await other.query(
      `insert into operations (account_id, host_id, machine_id, snapshot_id, kind, actor)
       select account_id, host_id, machine_id, id, 'snapshot', 'user' from snapshots where id = $1`,
      [id],
    );
    await other.query('commit');
    await other.end();
    assert.equal((await deleting).status, 409);
    assert.equal((await machineOf(machine)).state, 'running');
  });

  it('takes along the one that is being made, whose request is told', async () => {
    const machine = await create();
    host.fault('takeSnapshot', 'answerLate', 1);
    const taking = api('POST', `/v1/machines/${machine}/snapshots`);
    await bed.settled(() => host.snapshots.size === 1);
    assert.equal((await destroy(machine)).status, 200);
    host.heal();
    const answer = await taking;
    assert.deepEqual([answer.status, answer.json.detail], [409, 'The machine was deleted meanwhile.']);
    assert.deepEqual(await actionsOf(machine), ['machine.destroyed', 'machine.created']);
    const [entry] = (await api('GET', `/v1/machines/${machine}/activity`)).json.activity;
    assert.equal(entry.metadata.snapshots_deleted, 0);
  });

  it('goes through when the only one left is being deleted', async () => {
    const machine = await create();
    const id = await snap(machine);
    host.fault('deleteSnapshot', 'fail', 1);
    assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 500);
    assert.equal((await api('DELETE', `/v1/machines/${machine}`)).status, 200);
    assert.deepEqual([host.snapshots.has(id), await rowOf(id)], [false, undefined]);
  });

  it('races with snapshots, and each is either refused or has none left behind', async () => {
    for (let round = 0; round < 10; round++) {
      const machine = await create();
      const [taken, deleted] = await Promise.all([
        api('POST', `/v1/machines/${machine}/snapshots`),
        api('DELETE', `/v1/machines/${machine}`, { plane: bed.replicas[1] ?? bed.plane }),
      ]);
      const outcome = [taken.status, deleted.status].join();
      assert(['201,409', '409,200'].includes(outcome), `${outcome} ${taken.text} ${deleted.text}`);
    }
  });
});

describe('a snapshot whose bytes', () => {
  it('are lost is in error with the reason, cannot be used, and is ready when they are there again', async () => {
    const machine = await create();
    const id = await snap(machine);
    const lost = host.snapshots.get(id);
    assert(lost);
    host.snapshots.delete(id);
    await bed.settled(async () => (await api('GET', `/v1/snapshots/${id}`)).json.state === 'error');
    assert.match((await api('GET', `/v1/snapshots/${id}`)).json.error, /host has lost it/);
    assert.equal((await api('POST', `/v1/snapshots/${id}/restore`)).status, 409);
    assert.equal((await api('POST', '/v1/machines', { body: { snapshot_id: id } })).status, 409);
    assert.deepEqual(await listIds('/v1/snapshots?state=error'), [id]);
    host.snapshots.set(id, lost);
    await bed.settled(async () => (await api('GET', `/v1/snapshots/${id}`)).json.state === 'ready');
    host.snapshots.delete(id);
    await bed.settled(async () => (await api('GET', `/v1/snapshots/${id}`)).json.state === 'error');
    assert.equal((await api('DELETE', `/v1/snapshots/${id}`)).status, 204);
  });

  it('no account has are removed when this database gave the id away, and left alone otherwise', async () => {
    const machine_id = randomUUID();
    const about = { machine_id, kind: 'disk', size_gb: 10, stored_bytes: 1 } as const;
    const [ours, foreign] = [uuidv7(), uuidv7({ msecs: Date.UTC(2020, 0, 1) })];
    for (const snapshot_id of [ours, foreign]) host.snapshots.set(snapshot_id, { snapshot_id, ...about });
    await bed.settled(() => !host.snapshots.has(ours));
    await bed.plane.reconciler.runOnce();
    assert(host.snapshots.has(foreign));
    host.snapshots.delete(foreign);
  });

  it('were begun by a process that died are removed, with the row', async () => {
    const machine = await create();
    const id = uuidv7();
    // The process died after the host had taken the snapshot and before it marked the row as ready.
    host.snapshots.set(id, { snapshot_id: id, machine_id: machine, kind: 'disk', size_gb: 10, stored_bytes: 1 });
    await sql`insert into snapshots (id, account_id, host_id, machine_id, kind, size_gb, stack, vcpus, memory_mb, state)
      select ${id}, account_id, host_id, id, 'disk', 10, stack, vcpus, memory_mb, 'creating'
      from machines where id = ${machine}`.execute(db);
    await leaveOperation(db, machine, { kind: 'snapshot', snapshotId: id });
    await bed.settled(async () => (await rowOf(id)) === undefined && !host.snapshots.has(id));
    assert.deepEqual(await actionsOf(machine), ['machine.created']);
  });
});
