// Tests several requests for the same machine, volume or snapshot: a retry after a 503 of the host, the same request to
// another replica, and requests of the same moment. Each operation is done once, and every request gets its result.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { checkAll } from './support/in-order.ts';
import { begin, createRows } from './support/operations-under-way.ts';
import type { Kind } from './support/pairs-table.ts';
import { until } from './support/postgres.ts';
import { added, createScenes, type Scene, withoutTimes } from './support/scenes.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  replicas: 2,
  timing: { claimTtlMs: 30_000, claimRenewMs: 1_000 },
});
const { api, host } = bed;
const [, second] = bed.replicas;
assert(second);
const scenes = createScenes(bed);
const { makeMachine, makeVolume, makeSnapshot, attach, stopped, clear } = scenes;
const { operationsOf, unfinished, countEntries, changesSince, actionsOf, rowOf } = scenes;
const ROWS = createRows(api, scenes);
afterEach(() => host.heal());

describe('a retry after a 503 of the host', () => {
  const RETRIED: Kind[] = ['start', 'stop', 'destroy', 'restore', 'attach', 'detach'];
  const AWAY: [string, 'before' | 'during'][] = [
    ['that was away when it was asked', 'before'],
    ['that went away while it was asked', 'during'],
  ];
  for (const kind of RETRIED) {
    for (const [when, moment] of AWAY) {
      // If the host never received the restore, the service undoes it without a host call, and the test would have
      // nothing to wait for.
      if (kind === 'restore' && moment === 'before') continue;
      it(`${when} waits for what the ${kind} left under way, and answers 200 with one entry`, async () => {
        const row = ROWS[kind];
        const scene = scenes.emptyScene();
        await row.arrange(scene);
        const earlier = (await actionsOf(scene.machine)).length;
        if (moment === 'before') {
          await host.away();
          await checkUnavailable(row.ask(scene));
        } else {
          // The host carries out the call, but its answer never arrives.
          const { first } = await begin(
            bed,
            scenes,
            row.step,
            () => row.ask(scene),
            'hangAfter',
            Number.POSITIVE_INFINITY,
          );
          await host.away();
          await checkUnavailable(first);
        }
        const left = (await operationsOf(scene)).filter((one) => one.finished_at === null);
        assert.deepEqual(
          left.map((one) => one.kind),
          [kind],
          'it is under way still',
        );
        host.fault(row.step, 'hang');
        const from = host.calls.length;
        await host.listen();
        await until(() => changesSince(from).length > 0, 'the service goes on with it', 60_000);
        const retried = row.ask(scene);
        await somebodyWaitsFor(left[0]?.id ?? '');
        host.heal();
        const answer = await retried;
        assert.equal(answer.status, 200, answer.text);
        await until(
          async () => !(await operationsOf(scene)).some((one) => one.finished_at === null),
          'all has ended',
          60_000,
        );
        assert.deepEqual((await actionsOf(scene.machine)).slice(earlier), [row.entry]);
        await checkAll(bed);
        await clear(scene);
      });
    }
  }

  it('that never heard of a restore restores once', async () => {
    const scene = scenes.emptyScene();
    await ROWS.restore.arrange(scene);
    await host.away();
    await checkUnavailable(ROWS.restore.ask(scene));
    await host.listen();
    let answer: Answer | undefined;
    await until(
      async () => {
        answer = await ROWS.restore.ask(scene);
        return answer.status !== 503;
      },
      'the host is back',
      60_000,
    );
    assert.equal(answer?.status, 200, answer?.text);
    assert.deepEqual((await actionsOf(scene.machine)).slice(2), ['snapshot.restored']);
    await checkAll(bed);
    await clear(scene);
  });

  async function checkUnavailable(asking: Promise<Answer>): Promise<void> {
    const { status, json, headers } = await asking;
    assert.deepEqual([status, json.code], [503, 'host_unavailable']);
    assert(Number(headers.get('retry-after')) > 0);
  }
});

describe('a joiner on another replica', () => {
  for (const kind of ['start', 'stop', 'destroy', 'restore', 'attach', 'detach'] as const) {
    it(`gets the result of the ${kind}, which is done once`, async () => {
      const scene = scenes.emptyScene();
      await ROWS[kind].arrange(scene);
      const feed = await countEntries();
      const { first, operation } = await begin(bed, scenes, ROWS[kind].step, () => ROWS[kind].ask(scene));
      const held = host.calls.length;
      const joined = askOn(kind, scene);
      await somebodyWaitsFor(operation.id);
      host.release();
      const [one, other] = await Promise.all([first, joined]);
      assert.deepEqual([one.status, other.status], [200, 200], other.text);
      assert.deepEqual(withoutTimes(other.json), withoutTimes(one.json));
      assert.equal(added(feed, await countEntries(), ROWS[kind].entry), 1);
      assert.deepEqual(changesSince(held), []);
      await checkAll(bed);
      await clear(scene);
    });
  }

  it('gets the refusal that the operation ended with', async () => {
    const machine = await stopped();
    host.fault('ensure', 'hangThenFail', 1);
    const first = api('POST', `/v1/machines/${machine}/start`);
    await until(async () => (await unfinished()).length === 1, 'it is under way', 60_000);
    const [operation] = await unfinished();
    const joined = api('POST', `/v1/machines/${machine}/start`, { plane: second });
    await somebodyWaitsFor(operation?.id ?? '');
    host.release();
    const answers = await Promise.all([first, joined]);
    assert.deepEqual(
      answers.map(({ status, json }) => [status, json.code]),
      [
        [500, 'internal_error'],
        [500, 'internal_error'],
      ],
    );
    assert.equal((await rowOf(machine)).state, 'stopped');
    assert.deepEqual(
      (await actionsOf(machine)).filter((action) => action === 'machine.started'),
      [],
    );
    await checkAll(bed);
  });

  const askOn = (kind: Kind, { machine, volume, snapshot }: Scene): Promise<Answer> => {
    const options = { plane: second };
    if (kind === 'destroy') {
      return api('DELETE', `/v1/machines/${machine}?delete_snapshots=true&preserve_storage=true`, options);
    }
    if (kind === 'restore') return api('POST', `/v1/snapshots/${snapshot}/restore`, options);
    if (kind === 'detach') return api('POST', `/v1/volumes/${volume}/detach`, options);
    if (kind === 'attach') {
      return api('POST', `/v1/volumes/${volume}/attach`, { ...options, body: { machine_id: machine } });
    }
    return api('POST', `/v1/machines/${machine}/${kind}`, options);
  };
});

describe('what is told to the host', () => {
  it('is the generation of the row, after every operation', async () => {
    const machine = await makeMachine();
    const volume = await makeVolume();
    const snapshot = await makeSnapshot(machine);
    const acts: (() => Promise<Answer>)[] = [
      () => api('POST', `/v1/machines/${machine}/stop`),
      () => api('POST', `/v1/machines/${machine}/start`),
      () => attach(volume, machine),
      () => api('POST', `/v1/snapshots/${snapshot}/restore`),
      () => api('POST', `/v1/volumes/${volume}/detach`),
    ];
    for (const act of acts) {
      const answer = await act();
      assert.equal(answer.status, 200, answer.text);
      assert.equal(host.machines.get(machine)?.report.generation, (await rowOf(machine)).generation);
    }
    await clear({ machine, volume, snapshot });
  });
});

describe('requests of the same moment', () => {
  const ROUNDS = 10;

  it('attach one volume to one of two machines, and refuse the other', async () => {
    const [one, other] = [await makeMachine(), await makeMachine()];
    for (let round = 0; round < ROUNDS; round++) {
      const volume = await makeVolume();
      const answers = await Promise.all([attach(volume, one), attach(volume, other)]);
      assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409], answers.map(({ text }) => text).join());
      await api('POST', `/v1/volumes/${volume}/detach`);
    }
    await checkAll(bed);
  });

  it('attach a volume or delete it, never both and never a 500', async () => {
    const machine = await makeMachine();
    for (let round = 0; round < ROUNDS; round++) {
      const volume = await makeVolume();
      const [attached, deleted] = await Promise.all([attach(volume, machine), api('DELETE', `/v1/volumes/${volume}`)]);
      const outcome = `${attached.status},${deleted.status}`;
      assert(['200,409', '404,204'].includes(outcome), `${outcome} ${attached.text} ${deleted.text}`);
      await api('POST', `/v1/volumes/${volume}/detach`);
    }
    await checkAll(bed);
  });

  it('delete a volume once, and never answer 500', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const volume = await makeVolume();
      const feed = await countEntries();
      const answers = await Promise.all(Array.from({ length: 5 }, () => api('DELETE', `/v1/volumes/${volume}`)));
      const statuses = answers.map(({ status }) => status);
      assert(statuses.includes(204) && statuses.every((status) => status === 204 || status === 404), statuses.join());
      assert.equal(added(feed, await countEntries(), 'volume.deleted'), 1);
    }
  });

  it('restore a snapshot and delete it, one after the other', async () => {
    const machine = await makeMachine();
    for (let round = 0; round < ROUNDS; round++) {
      const snapshot = await makeSnapshot(machine);
      const [restored, deleted] = await Promise.all([
        api('POST', `/v1/snapshots/${snapshot}/restore`),
        api('DELETE', `/v1/snapshots/${snapshot}`),
      ]);
      const outcome = `${restored.status},${deleted.status}`;
      assert(['200,204', '404,204'].includes(outcome), `${outcome} ${restored.text} ${deleted.text}`);
    }
    await checkAll(bed);
  });

  it('start, stop and destroy one machine: one entry for each that was done', async () => {
    const machine = await stopped();
    const planes = [bed.plane, second];
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        api('POST', `/v1/machines/${machine}/start`, { plane: planes[index % 2] ?? bed.plane }),
      ),
    );
    assert(answers.every(({ status }) => status === 200));
    assert.deepEqual((await actionsOf(machine)).slice(2), ['machine.started']);
    const destroyed = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        api('DELETE', `/v1/machines/${machine}`, { plane: planes[index % 2] ?? bed.plane }),
      ),
    );
    assert(destroyed.every(({ status }) => status === 200 || status === 404));
    assert.deepEqual((await actionsOf(machine)).slice(3), ['machine.destroyed']);
    await checkAll(bed);
  });
});

describe('a delete', () => {
  it('without delete_snapshots is a 409 while the first snapshot is being made, which goes on', async () => {
    const machine = await makeMachine();
    const { first } = await begin(bed, scenes, 'takeSnapshot', () => api('POST', `/v1/machines/${machine}/snapshots`));
    const refused = await api('DELETE', `/v1/machines/${machine}`);
    assert.equal(refused.status, 409, refused.text);
    host.release();
    assert.equal((await first).status, 201);
    await checkAll(bed);
  });

  it('without delete_snapshots is a 409 while a snapshot is restored, which goes on', async () => {
    const machine = await makeMachine();
    const snapshot = await makeSnapshot(machine);
    const { first } = await begin(bed, scenes, 'ensure', () => api('POST', `/v1/snapshots/${snapshot}/restore`));
    const refused = await api('DELETE', `/v1/machines/${machine}`);
    assert.equal(refused.status, 409, refused.text);
    host.release();
    assert.equal((await first).status, 200);
    await checkAll(bed);
  });

  it('that ended a start and finds no disk to keep leaves no machine that is provisioning for ever', async () => {
    const machine = await stopped();
    const { first } = await begin(bed, scenes, 'ensure', () => api('POST', `/v1/machines/${machine}/start`));
    host.machines.delete(machine);
    const refused = await api('DELETE', `/v1/machines/${machine}?preserve_storage=true`);
    assert.equal(refused.status, 409, refused.text);
    host.release();
    assert.equal((await first).status, 409);
    await until(
      async () => (await rowOf(machine)).state === 'error',
      'it is in error, as one that its host lost',
      30_000,
    );
    await checkAll(bed);
    assert.equal((await api('DELETE', `/v1/machines/${machine}`)).status, 200);
  });
});
