// Tests of data volumes: what may be created, attached, detached and deleted, what is refused and with which message,
// and that counters, feed and host agree afterwards.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { insertAccount } from '../src/accounts/store.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { checkAll } from './support/in-order.ts';
import { isBusy } from './support/operations.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs, refusalOf, VOLUME_GB } from './support/volumes.ts';

const bed = await startTestBed({ replicas: 2, host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 } });
const { api, host, keys, accountId } = bed;
const { db } = bed.plane.app;
const { makeMachine, makeStopped, makeVolume, attach, detach, attached, rowOf, entriesOf, onHost } =
  createVolumeActs(bed);
const attachOn = (replica: number, id: string, machine_id: string) =>
  api('POST', `/v1/volumes/${id}/attach`, { body: { machine_id }, plane: bed.replicas[replica] ?? bed.plane });
const shown = async (id: string) => (await api('GET', `/v1/volumes/${id}`)).json;
const used = async (id = accountId) => {
  const row = await db.selectFrom('accounts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  return [row.used_storage_gb, row.used_volumes] as [number, number];
};
const keepDisk = async (): Promise<string> =>
  (await api('DELETE', `/v1/machines/${await makeMachine()}?preserve_storage=true`)).json.root_volume_id;
let accounts = 0;
async function newAccount(changes: object = {}) {
  const id = await insertAccount(db, { email: `v${accounts++}@example.test`, tier: 'free', ...changes });
  return { id, key: await insertKey(db, id, 'full', 'volumes') };
}

afterEach(() => host.heal());

describe('POST /v1/volumes', () => {
  it('makes an empty data volume on the host, charges it and says so in the feed', async () => {
    const [storage, volumes] = await used();
    const { status, json } = await api('POST', '/v1/volumes', { body: { name: 'cache', size_gb: 5 } });
    assert.equal(status, 201);
    const { id, created_at, ...rest } = json;
    assert.match(created_at, /Z$/);
    assert.deepEqual(rest, {
      account_id: accountId,
      name: 'cache',
      kind: 'data',
      size_gb: 5,
      state: 'available',
      machine_id: null,
      mount_path: null,
      error: null,
    });
    assert.deepEqual(await shown(id), json);
    assert.deepEqual(host.volumes.get(id), { volume_id: id, size_gb: 5, kind: 'data' });
    assert.deepEqual(await used(), [storage + 5, volumes + 1]);
    const { activity } = (await api('GET', '/v1/activity?category=volume&page_size=1')).json;
    const { machine_id, ...entry } = activity[0];
    assert.deepEqual([machine_id, entry.action, entry.actor], [undefined, 'volume.created', 'user']);
    assert.deepEqual(entry.metadata, { volume_id: id, size_gb: 5 });
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
    assert.deepEqual(await used(), [storage, volumes]);
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.deleted']);
    await checkAll(bed);
  });

  it('of a size or a field that is not allowed is a 400 that names it', async () => {
    for (const [body, detail] of [
      [{ size_gb: 4 }, /^size_gb must be an integer from 5 to 1024/],
      [{ size_gb: 1025 }, /^size_gb must be/],
      [{ size_gb: 5.5 }, /^size_gb must be/],
      [{ size_gb: '5' }, /^size_gb must be/],
      [{}, /^size_gb is required/],
      [{ size_gb: 5, kind: 'root' }, /^Unknown field "kind"/],
      [{ size_gb: 5, name: 'x'.repeat(256) }, /^name must be/],
      [{ size_gb: 5, name: 'a\0b' }, /^name must hold no NUL/],
    ] as const) {
      const answer = await api('POST', '/v1/volumes', { body });
      assert.deepEqual(refusalOf(answer), [400, 'validation_error'], answer.text);
      assert.match(answer.json.detail, detail);
    }
    assert.equal((await api('POST', '/v1/volumes')).status, 400);
  });

  it('is for a full key', async () => {
    assert.equal((await api('POST', '/v1/volumes', { key: keys.read, body: { size_gb: 5 } })).status, 403);
  });

  it('over the quota of volumes or of storage is a 403 that names it, and makes nothing', async () => {
    const { id, key } = await newAccount();
    const ask = (size_gb: number) => api('POST', '/v1/volumes', { key, body: { size_gb } });
    assert.match((await ask(31)).json.detail, /quota storage_gb of the account .*: used 0, requested 31, limit 30/);
    for (let made = 0; made < 2; made++) assert.equal((await ask(5)).status, 201);
    const answer = await ask(5);
    assert.deepEqual(refusalOf(answer), [403, 'quota_exceeded']);
    assert.match(answer.json.detail, /quota volumes of the account .*: used 2, requested 1, limit 2/);
    assert.deepEqual(await used(id), [10, 2]);
    assert.match((await ask(21)).json.detail, /quota storage_gb/, 'the first of the dimensions is named');
    await checkAll(bed);
  });

  it('20 at once over two replicas against a limit of 2 make exactly 2', async () => {
    const { id, key } = await newAccount();
    const ask = (_: unknown, index: number) =>
      api('POST', '/v1/volumes', { key, body: { size_gb: 5 }, plane: bed.replicas[index % 2] ?? bed.plane });
    const answers = await Promise.all(Array.from({ length: 20 }, ask));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 201, ...Array(18).fill(403)]);
    assert.deepEqual(await used(id), [10, 2]);
    await checkAll(bed);
  });

  it('on an empty prepaid wallet is a 402', async () => {
    const { key } = await newAccount({ billingMode: 'prepaid' });
    assert.deepEqual(refusalOf(await api('POST', '/v1/volumes', { key, body: { size_gb: 5 } })), [
      402,
      'insufficient_balance',
    ]);
  });

  it('without a host that answers is a 503 host_unavailable, on one that is drained a 503 fleet_capacity', async () => {
    const before = await used();
    await db.updateTable('hosts').set({ draining: true }).execute();
    const drained = await api('POST', '/v1/volumes', { body: { size_gb: 5 } });
    await db.updateTable('hosts').set({ draining: false }).execute();
    assert.deepEqual(refusalOf(drained), [503, 'fleet_capacity']);
    assert.match(drained.json.detail, /limit of the fleet, not a quota/);
    await host.away();
    await bed.settled(() => bed.replicas.every(({ app }) => app.hosts.reachableIds().length === 0));
    const away = await api('POST', '/v1/volumes', { body: { size_gb: 5 } });
    await host.listen();
    await bed.settled(() => bed.replicas.every(({ app }) => app.hosts.reachableIds().length === 1));
    assert.deepEqual(refusalOf(away), [503, 'host_unavailable']);
    assert(away.headers.get('retry-after') && drained.headers.get('retry-after'));
    assert.deepEqual(await used(), before);
  });

  it('is not shown, counts, and is not undone before it is made', async () => {
    const [storage, volumes] = await used();
    const listed = async () => (await api('GET', '/v1/volumes')).json.volumes.map(({ id }: { id: string }) => id);
    const before = await listed();
    host.fault('ensureVolume', 'hang', 1);
    const from = host.calls.length;
    const making = api('POST', '/v1/volumes', { body: { size_gb: 5 } });
    const asked = () => host.calls.slice(from).find(({ operation }) => operation === 'ensureVolume');
    await bed.settled(() => asked() !== undefined);
    const id = asked()?.machineId ?? '';
    assert.deepEqual(await listed(), before);
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/detach'],
    ]) {
      assert.equal((await api(method ?? '', `/v1/volumes/${id}${path}`)).status, 404, `${method} ${path}`);
    }
    assert.equal((await attach(id, await makeMachine())).status, 404);
    assert.deepEqual((await used()).at(1), volumes + 1);
    // Wait for longer than an unrenewed claim would last.
    await bed.settled(async () => {
      const { rows } =
        await sql`select from volumes where id = ${id} and created_at < now() - interval '4 seconds'`.execute(db);
      return rows.length === 1;
    });
    for (const replica of bed.replicas) await replica.reconciler.runOnce();
    await checkAll(bed);
    host.heal();
    assert.deepEqual([(await making).status, (await making).json.id], [201, id]);
    assert.deepEqual(await listed(), [id, ...before]);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
    assert.equal((await used())[1], volumes);
    assert(storage >= 0);
  });
});

describe('attach', () => {
  for (const [name, make] of [
    ['running', makeMachine],
    ['stopped', makeStopped],
  ] as const) {
    it(`to a ${name} machine mounts it there, by default at /mnt/<volume id>`, async () => {
      const machineId = await make();
      const state = host.machines.get(machineId)?.report.status;
      const [first, second] = [await makeVolume(), await makeVolume()];
      const answer = await attach(first, machineId);
      assert.equal(answer.status, 200, answer.text);
      const { state: is, machine_id, mount_path } = answer.json;
      assert.deepEqual([is, machine_id, mount_path], ['attached', machineId, `/mnt/${first}`]);
      assert.deepEqual(await shown(first), answer.json);
      assert.equal((await attach(second, machineId, '/data/my stuff')).status, 200);
      assert.deepEqual(onHost(machineId), { [first]: `/mnt/${first}`, [second]: '/data/my stuff' });
      assert.equal(host.machines.get(machineId)?.report.status, state, 'it runs when it ran');
      assert.deepEqual(await entriesOf(first), ['volume.created', 'volume.attached']);
      const { activity } = (await api('GET', `/v1/machines/${machineId}/activity?category=volume`)).json;
      assert.deepEqual(
        activity.map((entry: { action: string; metadata: object }) => [entry.action, entry.metadata]),
        [second, first].map((volume_id) => ['volume.attached', { volume_id }]),
      );
      await checkAll(bed);
    });
  }

  it('is told to the host again by a stop and a start', async () => {
    const machineId = await makeMachine();
    const id = await attached(machineId, '/data');
    for (const action of ['stop', 'start']) {
      assert.equal((await api('POST', `/v1/machines/${machineId}/${action}`)).status, 200);
      assert.deepEqual(onHost(machineId), { [id]: '/data' });
    }
    await checkAll(bed);
  });

  it('names a path before those below it, so that each is mounted into the other', async () => {
    const machineId = await makeMachine();
    const [deep, shallow] = [await attached(machineId, '/data/a/b'), await attached(machineId, '/data')];
    const middle = await attached(machineId, '/data/a');
    assert.deepEqual(Object.keys(onHost(machineId)), [shallow, middle, deep]);
  });

  it('of an absent or foreign volume, and to an absent or foreign machine, is a 404 in equal words', async () => {
    const [own, machineId] = [await makeVolume(), await makeMachine()];
    const [foreign, foreignMachine] = [await makeVolume(keys.other), await makeMachine(keys.other)];
    const words = async (id: string, machine: string) => {
      const answer = await attach(id, machine);
      return [...refusalOf(answer), answer.json.detail];
    };
    assert.deepEqual(await words(foreign, machineId), await words(randomUUID(), machineId));
    assert.deepEqual(await words(own, foreignMachine), await words(own, randomUUID()));
    assert.deepEqual(await words(own, randomUUID()), [404, 'not_found', 'There is no such machine.']);
    assert.deepEqual(await words(foreign, foreignMachine), [404, 'not_found', 'There is no such volume.']);
    for (const path of ['attach', 'detach']) {
      const ask = (id: string) =>
        api('POST', `/v1/volumes/${id}/${path}`, path === 'attach' ? { body: { machine_id: machineId } } : {});
      assert.deepEqual((await ask(foreign)).json, (await ask(randomUUID())).json);
    }
    assert.deepEqual([(await rowOf(foreign))?.machine_id, (await rowOf(own))?.machine_id], [null, null]);
  });

  it('at a path that cannot be is a 400', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    const wrong = ['', '/', 'data', './data', '/data/', '//data', '/a/../b', '/a/./b', '/..', '/a\nb', '/a\x7f'];
    wrong.push('/proc', '/proc/1', '/sys', '/sys/fs', '/dev', '/dev/shm', '/run', '/run/x', `/${'x'.repeat(255)}`);
    for (const path of wrong) {
      assert.deepEqual(refusalOf(await attach(id, machineId, path)), [400, 'validation_error'], JSON.stringify(path));
    }
    const { json } = await attach(id, machineId, '/a/../b');
    assert.match(
      json.detail,
      /^mount_path must be an absolute path of at most 255 characters in its shortest form: no "."/,
    );
    assert.match(
      (await attach(id, machineId, '/run/x')).json.detail,
      /must not be at or below .*: the machine needs \/run/,
    );
    const body = { machine_id: machineId };
    for (const strange of [{}, { machine_id: 'x' }, { ...body, read_only: true }, { ...body, mount_path: null }]) {
      assert.equal((await api('POST', `/v1/volumes/${id}/attach`, { body: strange })).status, 400);
    }
    for (const path of ['/processes', '/a/...', '/runner/x', '/…', `/${'x'.repeat(254)}`]) {
      assert.equal((await attach(id, machineId, path)).status, 200, path);
      assert.equal((await detach(id)).status, 200);
    }
  });

  it('of one that is attached is a conflict, unless it is there already, at that path', async () => {
    const [machineId, other] = [await makeMachine(), await makeMachine()];
    const id = await attached(machineId, '/data');
    const asked = host.callsOf('ensure');
    assert.deepEqual((await attach(id, machineId, '/data')).json, await shown(id));
    for (const [machine, path] of [
      [machineId, '/elsewhere'],
      [machineId, undefined],
      [other, '/data'],
    ] as const) {
      const answer = await attach(id, machine, path);
      assert.deepEqual(refusalOf(answer), [409, 'conflict']);
      assert.match(answer.json.detail, new RegExp(`attached to machine ${machineId} at /data: detach it first`));
    }
    assert.equal(host.callsOf('ensure'), asked, 'nothing is asked of the host');
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
  });

  it('of a root disk is a conflict that says how to use it', async () => {
    const answer = await attach(await keepDisk(), await makeMachine());
    assert.deepEqual(refusalOf(answer), [409, 'conflict']);
    assert.match(answer.json.detail, /root_volume_id/);
  });

  it('of a volume in error is a conflict that says why', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    const disk = host.volumes.get(id);
    assert(disk);
    host.volumes.delete(id);
    await bed.settled(async () => (await shown(id)).state === 'error');
    const answer = await attach(id, machineId);
    assert.deepEqual(refusalOf(answer), [409, 'conflict']);
    assert.match(answer.json.detail, /lost/);
    host.volumes.set(id, disk);
    await bed.settled(async () => (await shown(id)).state === 'available');
    assert.equal((await attach(id, machineId)).status, 200);
  });

  it('to a machine that does not allow it is a conflict that names its state', async () => {
    const id = await makeVolume();
    const broken = await makeMachine();
    host.end(broken, 'failed', 'It died.');
    await bed.settled(async () => (await api('GET', `/v1/machines/${broken}`)).json.state === 'error');
    const gone = await makeMachine();
    await api('DELETE', `/v1/machines/${gone}`);
    for (const [machineId, state] of [
      [broken, 'error'],
      [gone, 'destroyed'],
    ] as const) {
      const answer = await attach(id, machineId);
      assert.deepEqual(refusalOf(answer), [409, 'conflict']);
      assert.equal(answer.json.detail, `The machine is ${state}; attach needs it running or stopped.`);
    }
    await checkAll(bed);
  });

  it('to a machine whose deletion began is a conflict', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    host.fault('delete', 'fail');
    await api('DELETE', `/v1/machines/${machineId}`);
    const answer = await attach(id, machineId);
    assert.deepEqual([answer.status, answer.json.detail], [409, 'The machine is being deleted.']);
  });

  it('of a volume on a host that is away is 503, and begins nothing', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    const elsewhere = randomUUID();
    await sql`insert into hosts (id, version, boot_id, isolation, network, subnet, cpus, memory_mb, images)
      select ${elsewhere}, version, boot_id, isolation, network, subnet, cpus, memory_mb, images from hosts limit 1`.execute(
      db,
    );
    await db.updateTable('volumes').set({ host_id: elsewhere }).where('id', '=', id).execute();
    const answer = await attach(id, machineId);
    assert.deepEqual(refusalOf(answer), [503, 'host_unavailable']);
    const underWay = db.selectFrom('operations').select('id').where('volume_id', '=', id);
    assert.deepEqual(await underWay.where('finished_at', 'is', null).execute(), []);
    await sql`update volumes set host_id = (select id from hosts where id <> ${elsewhere}) where id = ${id}`.execute(
      db,
    );
    await sql`delete from hosts where id = ${elsewhere}`.execute(db);
  });

  it('eight at once are attached; the ninth, and a path that is taken, are conflicts', async () => {
    const machineId = await makeMachine();
    const volumes = await Promise.all(Array.from({ length: 8 }, () => makeVolume()));
    const taken = await makeVolume();
    assert.equal((await attach(volumes[0] ?? '', machineId, '/data')).status, 200);
    const answer = await attach(taken, machineId, '/data');
    assert.deepEqual(refusalOf(answer), [409, 'conflict']);
    assert.match(answer.json.detail, /Another volume of the machine is mounted at \/data/);
    const answers = await Promise.all(volumes.slice(1).map((id) => attach(id, machineId)));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    const ninth = await attach(taken, machineId);
    assert.deepEqual(refusalOf(ninth), [409, 'conflict']);
    assert.match(ninth.json.detail, /8 data volumes/);
    assert.equal(Object.keys(onHost(machineId)).length, 8);
    assert.equal((await detach(volumes[3] ?? '')).status, 200);
    assert.equal((await attach(taken, machineId)).status, 200);
    await checkAll(bed);
  });

  it('twice at once, of one volume to two machines, is done once; the other is a conflict', async () => {
    for (let round = 0; round < 5; round++) {
      const [id, ...machines] = [await makeVolume(), await makeMachine(), await makeMachine()];
      const answers = await Promise.all(machines.map((machine_id, index) => attachOn(index, id, machine_id)));
      assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409]);
      assert.equal(machines.filter((machineId) => id in onHost(machineId)).length, 1);
      assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
    }
    await checkAll(bed);
  });

  it('twice at once, of two volumes at one path, is done once; and a delete at once wins or loses whole', async () => {
    const machineId = await makeMachine();
    const [first, second, third] = [await makeVolume(), await makeVolume(), await makeVolume()];
    const answers = await Promise.all([first, second].map((id) => attach(id, machineId, '/one')));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409]);
    const [attaching, deleting] = await Promise.all([attach(third, machineId), api('DELETE', `/v1/volumes/${third}`)]);
    assert(
      (attaching.status === 200 && deleting.status === 409) ||
        ([404, 409].includes(attaching.status) && deleting.status === 204),
      `${attaching.text} ${deleting.text}`,
    );
    await checkAll(bed);
  });

  it('while it is under way the volume is available; a delete and an attach elsewhere wait for its end', async () => {
    const [id, machineId, other] = [await makeVolume(), await makeMachine(), await makeMachine()];
    host.fault('ensure', 'hang', 1);
    const attaching = attach(id, machineId);
    await bed.settled(() => isBusy(db, id));
    const { state, machine_id, mount_path } = await shown(id);
    assert.deepEqual([state, machine_id, mount_path], ['available', null, null]);
    const waiting = [api('DELETE', `/v1/volumes/${id}`), attach(id, other)];
    await checkAll(bed);
    host.heal();
    assert.equal((await attaching).status, 200);
    for (const answer of await Promise.all(waiting)) {
      assert.deepEqual(refusalOf(answer), [409, 'conflict']);
      assert.match(answer.json.detail, new RegExp(`attached to machine ${machineId}.*: detach it first`));
    }
    await checkAll(bed);
  });

  it('of what is being attached there joins it, and gets its result', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    const answers = await Promise.all([0, 1, 0, 1].map((replica) => attachOn(replica, id, machineId)));
    assert.deepEqual(
      answers.map(({ status, json }) => [status, json.state]),
      Array(4).fill([200, 'attached']),
    );
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
    await checkAll(bed);
  });

  it('that the host refuses changes nothing and passes the refusal on', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    for (const fault of [
      new ServiceError('conflict', 'No slot is free.'),
      new ServiceError('fleet_capacity', 'Full.'),
    ]) {
      host.fault('ensure', fault, 1);
      const answer = await attach(id, machineId);
      assert.deepEqual([answer.json.code, answer.json.detail.slice(0, 5)], [fault.code, fault.message.slice(0, 5)]);
      assert.equal((await shown(id)).state, 'available');
      await checkAll(bed);
    }
    host.fault('ensure', 'failAfter', 1);
    assert.equal((await attach(id, machineId)).status, 500);
    assert.deepEqual(onHost(machineId), {}, 'what the host did half-way is taken back');
    assert.deepEqual(await entriesOf(id), ['volume.created']);
    await checkAll(bed);
    assert.equal((await attach(id, machineId)).status, 200);
  });

  it('to a machine that died unseen does not bring it back (CTL-6)', async () => {
    for (const [status, state] of [
      ['failed', 'error'],
      ['stopped', 'stopped'],
    ] as const) {
      const [id, machineId] = [await makeVolume(), await makeMachine()];
      host.isMute = true;
      host.end(machineId, status, 'It ended.');
      const answer = await attach(id, machineId);
      host.isMute = false;
      assert.equal(answer.status, state === 'error' ? 409 : 200, answer.text);
      assert.equal((await api('GET', `/v1/machines/${machineId}`)).json.state, state);
      assert.equal(host.machines.get(machineId)?.report.status, status);
      await checkAll(bed);
    }
  });

  it('and a detach do not bring back a machine that ends after the host was asked about it (CTL-6)', async () => {
    for (const [status, state] of [
      ['failed', 'error'],
      ['stopped', 'stopped'],
    ] as const) {
      for (const change of ['attach', 'detach']) {
        const machineId = await makeMachine();
        const id = change === 'attach' ? await makeVolume() : await attached(machineId);
        host.isMute = true;
        host.fault('get', 'answerLate', 1);
        const asked = host.callsOf('get');
        const changing = change === 'attach' ? attach(id, machineId) : detach(id);
        await bed.settled(() => host.callsOf('get') > asked);
        // The answer says that the machine runs, but it ends before the next call.
        host.end(machineId, status, 'It ended.');
        host.release();
        const answer = await changing;
        host.isMute = false;
        assert.deepEqual(refusalOf(answer), [409, 'conflict'], `${change}, ${status}: ${answer.text}`);
        assert.match(answer.json.detail, /the machine does not run/);
        assert.equal((await api('GET', `/v1/machines/${machineId}`)).json.state, state);
        assert.equal(host.machines.get(machineId)?.report.status, status);
        assert.equal((await shown(id)).state, change === 'attach' ? 'available' : 'attached');
        await checkAll(bed);
      }
    }
  });

  it('that the machine dies of is undone, and the machine stays dead (CTL-6)', async () => {
    const [id, machineId] = [await makeVolume(), await makeMachine()];
    host.fault('ensure', 'hangThenFail', 1);
    host.isMute = true;
    const asked = host.callsOf('ensure');
    const attaching = attach(id, machineId);
    await bed.settled(() => host.callsOf('ensure') > asked);
    host.end(machineId, 'failed', 'QEMU was killed.');
    host.heal();
    const answer = await attaching;
    assert.equal(answer.status, 500, answer.text);
    host.isMute = false;
    const { state, error } = (await api('GET', `/v1/machines/${machineId}`)).json;
    assert.deepEqual([state, error], ['error', 'QEMU was killed.']);
    assert.equal(host.machines.get(machineId)?.report.status, 'failed');
    const row = await rowOf(id);
    assert.deepEqual([row?.state, row?.machine_id, await isBusy(db, id)], ['available', null, false]);
    await checkAll(bed);
  });
});

describe('detach', () => {
  it('takes it from the machine, which others may have it then', async () => {
    for (const make of [makeMachine, makeStopped]) {
      const [machineId, next] = [await make(), await makeMachine()];
      const [id, stays] = [await attached(machineId, '/data'), await attached(machineId)];
      const answer = await detach(id);
      assert.equal(answer.status, 200, answer.text);
      const { state, machine_id, mount_path } = answer.json;
      assert.deepEqual([state, machine_id, mount_path], ['available', null, null]);
      assert.deepEqual(Object.keys(onHost(machineId)), [stays]);
      assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached', 'volume.detached']);
      const { activity } = (await api('GET', `/v1/machines/${machineId}/activity?category=volume&page_size=1`)).json;
      assert.deepEqual([activity[0].action, activity[0].metadata], ['volume.detached', { volume_id: id }]);
      assert.equal((await attach(id, next)).status, 200);
    }
    await checkAll(bed);
  });

  it('of one that is not attached is a conflict', async () => {
    for (const id of [await makeVolume(), await keepDisk()]) {
      const answer = await detach(id);
      assert.deepEqual([answer.status, answer.json.detail], [409, 'The volume is not attached to a machine.']);
    }
  });

  it('several times at once is done once, and each gets its result', async () => {
    const id = await attached(await makeMachine());
    const answers = await Promise.all([detach(id), detach(id), detach(id)]);
    const statuses = answers.map(({ status }) => status);
    // A detach that arrives after the volume is detached gets 409.
    assert(statuses.includes(200) && statuses.every((status) => status === 200 || status === 409), statuses.join());
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached', 'volume.detached']);
    await checkAll(bed);
  });

  it('of a busy one is the conflict of the host, and it stays attached', async () => {
    const machineId = await makeMachine();
    const id = await attached(machineId, '/data');
    host.stuck.add(id);
    const answer = await detach(id);
    assert.deepEqual([answer.status, answer.json.detail], [409, `Volume ${id} is in use by process 7 (sleep).`]);
    assert.deepEqual([(await shown(id)).state, onHost(machineId)], ['attached', { [id]: '/data' }]);
    host.heal();
    host.fault('ensure', 'failAfter', 1);
    assert.equal((await detach(id)).status, 500);
    assert.deepEqual([(await shown(id)).state, onHost(machineId)], ['attached', { [id]: '/data' }]);
    assert.deepEqual(await entriesOf(id), ['volume.created', 'volume.attached']);
    await checkAll(bed);
  });

  it('from a machine in error is done without its host', async () => {
    const machineId = await makeMachine();
    const id = await attached(machineId);
    host.end(machineId, 'failed', 'It died.');
    await bed.settled(async () => (await api('GET', `/v1/machines/${machineId}`)).json.state === 'error');
    assert.equal((await shown(id)).machine_id, machineId, 'its volumes outlive it');
    const asked = host.callsOf('ensure');
    assert.equal((await detach(id)).status, 200);
    assert.equal(host.callsOf('ensure'), asked);
    assert.equal((await attach(id, await makeMachine())).status, 200);
    await checkAll(bed);
  });

  it('from a machine that is being deleted is a conflict', async () => {
    const machineId = await makeStopped();
    const id = await attached(machineId);
    host.fault('delete', 'fail');
    await api('DELETE', `/v1/machines/${machineId}`);
    const answer = await detach(id);
    assert.deepEqual([answer.status, answer.json.detail], [409, 'The machine is being deleted.']);
    host.heal();
    await bed.settled(async () => (await shown(id)).state === 'available');
    await checkAll(bed);
  });
});

describe('a machine with volumes that is destroyed', () => {
  for (const [name, query] of [
    ['', ''],
    [', keeping its disk,', '?preserve_storage=true'],
  ]) {
    it(`sets them free${name} with an entry each, in the same moment`, async () => {
      const machineId = await makeMachine();
      const ids = [await attached(machineId), await attached(machineId, '/data')];
      const before = await used();
      assert.equal((await api('DELETE', `/v1/machines/${machineId}${query}`)).status, 200);
      for (const id of ids) {
        const { state, machine_id, mount_path } = await shown(id);
        assert.deepEqual([state, machine_id, mount_path], ['available', null, null]);
        assert(host.volumes.has(id));
      }
      const { activity } = (await api('GET', `/v1/machines/${machineId}/activity`)).json;
      assert.deepEqual(
        activity.slice(0, 3).map(({ action }: { action: string }) => action),
        ['machine.destroyed', 'volume.detached', 'volume.detached'],
      );
      assert.equal((await used())[1], before[1], 'they count on');
      await checkAll(bed);
      for (const id of ids) assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
    });
  }

  it('in error sets them free as well, and one in error stays in error', async () => {
    const machineId = await makeMachine();
    const [id, lost] = [await attached(machineId), await attached(machineId)];
    host.volumes.delete(lost);
    await bed.settled(async () => (await shown(lost)).state === 'error');
    host.end(machineId, 'failed', 'It died.');
    await bed.settled(async () => (await api('GET', `/v1/machines/${machineId}`)).json.state === 'error');
    assert.equal((await api('DELETE', `/v1/machines/${machineId}`)).status, 200);
    assert.deepEqual([(await shown(id)).state, (await shown(lost)).state], ['available', 'error']);
    assert.equal((await shown(lost)).machine_id, null);
    assert.equal((await api('DELETE', `/v1/volumes/${lost}`)).status, 204);
    await checkAll(bed);
  });

  it('while a volume is on its way takes the volume out of it, whichever way it went', async () => {
    for (const isDetach of [false, true]) {
      const machineId = await makeMachine();
      const id = isDetach ? await attached(machineId) : await makeVolume();
      host.fault('ensure', 'hangAfter', 1);
      const moving = isDetach ? detach(id) : attach(id, machineId);
      await bed.settled(() => isBusy(db, id));
      assert.equal((await api('DELETE', `/v1/machines/${machineId}`)).status, 200);
      host.heal();
      assert.notEqual((await moving).status, 200);
      const row = await rowOf(id);
      assert.deepEqual([row?.state, row?.machine_id, await isBusy(db, id)], ['available', null, false]);
      const entries = isDetach ? ['volume.attached', 'volume.detached'] : [];
      assert.deepEqual(await entriesOf(id), ['volume.created', ...entries]);
      await checkAll(bed);
    }
  });
});

describe('delete', () => {
  it('of an attached volume is a conflict that says what to do, also when it is in error', async () => {
    const machineId = await makeMachine();
    const id = await attached(machineId);
    const refused = async (detail: RegExp) => {
      const answer = await api('DELETE', `/v1/volumes/${id}`);
      assert.deepEqual(refusalOf(answer), [409, 'conflict']);
      assert.match(answer.json.detail, detail);
    };
    await refused(new RegExp(`The volume is attached to machine ${machineId}: detach it first`));
    host.volumes.delete(id);
    await bed.settled(async () => (await shown(id)).state === 'error');
    await refused(/in error, and still attached to machine .*: detach it first/);
    assert.deepEqual([(await shown(id)).machine_id, (await shown(id)).mount_path], [machineId, `/mnt/${id}`]);
    const answer = await detach(id);
    assert.deepEqual([answer.status, answer.json.state, answer.json.machine_id], [200, 'error', null]);
    assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
    await checkAll(bed);
  });
});

describe('the list', () => {
  it('has data volumes and kept root disks, by kind and state', async () => {
    const { key } = await newAccount({ tier: 'payg' });
    const machineId = await makeMachine(key);
    const make = async () => (await api('POST', '/v1/volumes', { key, body: { size_gb: VOLUME_GB } })).json.id;
    const [free, used] = [await make(), await make()];
    assert.equal(
      (await api('POST', `/v1/volumes/${used}/attach`, { key, body: { machine_id: machineId } })).status,
      200,
    );
    const second = await makeMachine(key);
    const root = (await api('DELETE', `/v1/machines/${second}?preserve_storage=true`, { key })).json.root_volume_id;
    const ids = async (query: string) =>
      (await api('GET', `/v1/volumes${query}`, { key })).json.volumes.map(({ id }: { id: string }) => id);
    assert.deepEqual(await ids(''), [root, used, free]);
    assert.deepEqual(await ids('?kind=data'), [used, free]);
    assert.deepEqual(await ids('?state=attached'), [used]);
    assert.deepEqual(await ids('?state=available&kind=data'), [free]);
  });
});
