// Crashes a process between any two steps (SQL statements or host calls) while it works on a snapshot or makes a
// machine from a snapshot or kept root disk, or drops the answer to one step. Then replicas finish the work. It must
// have an allowed result, and rows, quotas, feed and host must agree.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../src/app.ts';
import { destroyMachine } from '../src/machines/actions.ts';
import { createMachine } from '../src/machines/create.ts';
import { createSnapshot } from '../src/snapshots/create.ts';
import { deleteSnapshot } from '../src/snapshots/destroy.ts';
import { restoreSnapshot } from '../src/snapshots/restore.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  replicas: 2,
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  // The intervals are long, because the test itself starts passes of the reconcilers after each crash.
  timing: { reconcileMs: 2_000, reconcileJobsMs: 2_000, unknownGraceMs: 100 },
  bounds: { snapshotsPerAccount: 1000 },
});
const { api, host, accountId } = bed;
const { app } = bed.plane;
const { db } = app;

afterEach(() => host.heal());

const SMALL = { memory_mb: 128 };
const makeMachine = async (): Promise<string> => {
  const answer = await api('POST', '/v1/machines', { body: SMALL });
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const makeStopped = async (): Promise<string> => {
  const id = await makeMachine();
  assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
  return id;
};
const take = async (machineId: string): Promise<string> => {
  const answer = await api('POST', `/v1/machines/${machineId}/snapshots`);
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
};
const machineRow = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();
const entriesOf = async (machineId: string): Promise<string> => {
  const rows = await db
    .selectFrom('activity')
    .select('action')
    .where('machine_id', '=', machineId)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return rows.map(({ action }) => action).join(', ');
};
const countSnapshots = async (machineId: string): Promise<number> =>
  (await db.selectFrom('snapshots').select('id').where('machine_id', '=', machineId).execute()).length;

/** `id` is the snapshot or volume. `machineId` is the machine that it belongs to, or belonged to. */
type Subject = { machineId: string; id: string };
type Change = {
  name: string;
  prepare: () => Promise<Subject>;
  /** Sets a host fault before the operation begins. */
  fault?: () => void;
  act: (app: App, subject: Subject) => Promise<unknown>;
  /** Describes the result in a few words. Fails when rows, feed and host disagree. */
  story: (subject: Subject) => Promise<string>;
  /** The allowed results. Over all steps at which the process dies, each of them must occur at least once. */
  ends: string[];
};

const ofMachine = (make: () => Promise<string>) => async (): Promise<Subject> => ({ machineId: await make(), id: '' });
const ofSnapshot = (make: () => Promise<string>) => async (): Promise<Subject> => {
  const machineId = await make();
  return { machineId, id: await take(machineId) };
};
const ofRootVolume = async (): Promise<Subject> => {
  const machineId = await makeMachine();
  const { json } = await api('DELETE', `/v1/machines/${machineId}?preserve_storage=true`);
  return { machineId, id: json.root_volume_id };
};

/**
 * Asserts that row and host have the snapshot if the feed has its entry, else that neither has it. Returns the result.
 */
const storyOfTaking = async ({ machineId }: Subject): Promise<string> => {
  const told = (await entriesOf(machineId)).endsWith('snapshot.created');
  const rows = await db.selectFrom('snapshots').selectAll().where('machine_id', '=', machineId).execute();
  assert.deepEqual(
    rows.map(({ id, state }) => [state, host.snapshots.has(id)]),
    told ? [['ready', true]] : [],
  );
  assert.match((await machineRow(machineId))?.state ?? '', /running|stopped/);
  return told ? 'taken' : 'nothing';
};
const storyOfDelete = async ({ machineId, id }: Subject): Promise<string> => {
  const told = (await entriesOf(machineId)).endsWith('snapshot.deleted');
  assert.equal(await countSnapshots(machineId), told ? 0 : 1);
  assert.equal(host.snapshots.has(id), !told);
  return told ? 'deleted' : 'nothing';
};
const storyOfRestore = async ({ machineId, id }: Subject): Promise<string> => {
  const entries = (await entriesOf(machineId)).split('snapshot.created, ')[1] ?? '';
  const restores = host.machines.get(machineId)?.restores ?? [];
  const row = await machineRow(machineId);
  assert.equal(host.machines.get(machineId)?.report.status, row?.state);
  const told = entries.startsWith('snapshot.restored');
  if (told)
    assert.deepEqual(
      restores.map(({ snapshotId }) => snapshotId),
      [id],
      'it went back once',
    );
  return `${told ? 'restored' : 'not restored'}, ${row?.state}`;
};
/** Returns the machines made from the snapshot or volume. The original machine may name it too and is left out. */
const madeFrom = async ({ id, machineId }: Subject) =>
  db
    .selectFrom('machines')
    .selectAll()
    .where('id', '<>', machineId)
    .where((is) => is.or([is('snapshot_id', '=', id), is('root_volume_id', '=', id)]))
    .execute();
const storyOfCreate = async (subject: Subject): Promise<string> => {
  const { id } = subject;
  const [machine, ...more] = await madeFrom(subject);
  assert.deepEqual(more, []);
  if (machine) assert.equal(await entriesOf(machine.id), 'machine.created');
  const volume = await db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst();
  const snapshot = await db.selectFrom('snapshots').selectAll().where('id', '=', id).executeTakeFirst();
  if (!snapshot) {
    assert.equal(host.volumes.has(id), machine === undefined, 'the disk is in one place');
    assert.deepEqual([volume?.state, volume?.machine_id], machine ? [undefined, undefined] : ['available', null]);
  }
  return machine ? machine.state : 'nothing';
};
/** Returns the metadata of the machine's `machine.destroyed` entry in the feed. */
const destroyedEntry = async (machineId: string) => {
  const query = db.selectFrom('activity').select('metadata').where('machine_id', '=', machineId);
  return (await query.where('action', '=', 'machine.destroyed').executeTakeFirst())?.metadata;
};
const storyOfDestroy =
  (snapshots: number) =>
  async ({ machineId }: Subject): Promise<string> => {
    const row = await machineRow(machineId);
    const entries = (await entriesOf(machineId)).split(', ');
    const told = entries.includes('machine.destroyed');
    assert.equal(row?.state, told ? 'destroyed' : 'running');
    assert.equal(await countSnapshots(machineId), told ? 0 : snapshots);
    assert.equal(entries.filter((action) => action === 'snapshot.deleted').length, told ? snapshots : 0);
    if (told) assert.equal((await destroyedEntry(machineId))?.snapshots_deleted, snapshots);
    if (row?.root_volume_id) assert(host.volumes.has(row.root_volume_id));
    return told ? 'destroyed' : 'nothing';
  };
const withTwo = async (): Promise<Subject> => {
  const machineId = await makeMachine();
  await take(machineId);
  return { machineId, id: await take(machineId) };
};

const refuse = (operation: 'ensure' | 'takeSnapshot') => () =>
  host.fault(operation, new ServiceError('fleet_capacity', 'The disk of the host is full.'), 1);

const CHANGES: Change[] = [
  {
    name: 'a snapshot of a running machine',
    prepare: ofMachine(makeMachine),
    act: (app, { machineId }) => createSnapshot(app, accountId, machineId, { memory: true }),
    story: storyOfTaking,
    ends: ['nothing', 'taken'],
  },
  {
    name: 'a snapshot of a stopped machine',
    prepare: ofMachine(makeStopped),
    act: (app, { machineId }) => createSnapshot(app, accountId, machineId, {}),
    story: storyOfTaking,
    ends: ['nothing', 'taken'],
  },
  {
    name: 'a snapshot that is refused',
    prepare: ofMachine(makeMachine),
    fault: refuse('takeSnapshot'),
    act: (app, { machineId }) => createSnapshot(app, accountId, machineId, {}),
    story: storyOfTaking,
    ends: ['nothing'],
  },
  {
    name: 'a delete of a snapshot',
    prepare: ofSnapshot(makeMachine),
    act: (app, { id }) => deleteSnapshot(app, accountId, id),
    story: storyOfDelete,
    ends: ['deleted', 'nothing'],
  },
  {
    name: 'a restore of a running machine',
    prepare: ofSnapshot(makeMachine),
    act: (app, { id }) => restoreSnapshot(app, accountId, id),
    story: storyOfRestore,
    ends: ['not restored, running', 'restored, running'],
  },
  {
    name: 'a restore of a stopped machine',
    prepare: ofSnapshot(makeStopped),
    act: (app, { id }) => restoreSnapshot(app, accountId, id),
    story: storyOfRestore,
    ends: ['not restored, stopped', 'restored, stopped'],
  },
  {
    name: 'a restore that is refused',
    prepare: ofSnapshot(makeMachine),
    fault: refuse('ensure'),
    act: (app, { id }) => restoreSnapshot(app, accountId, id),
    story: storyOfRestore,
    // The restore is refused only once. If the process dies before it learns of the refusal, the retry may succeed.
    ends: ['not restored, running', 'restored, running'],
  },
  {
    name: 'a create from a snapshot',
    prepare: ofSnapshot(makeMachine),
    act: (app, { id }) => createMachine(app, accountId, { ...SMALL, snapshot_id: id }),
    story: storyOfCreate,
    ends: ['nothing', 'running'],
  },
  {
    name: 'a create from a root volume',
    prepare: ofRootVolume,
    act: (app, { id }) => createMachine(app, accountId, { ...SMALL, root_volume_id: id, rootfs_size_gb: 20 }),
    story: storyOfCreate,
    ends: ['nothing', 'running'],
  },
  {
    name: 'a create from a root volume that is refused',
    prepare: ofRootVolume,
    fault: refuse('ensure'),
    act: (app, { id }) => createMachine(app, accountId, { ...SMALL, root_volume_id: id, rootfs_size_gb: 20 }),
    story: storyOfCreate,
    ends: ['nothing', 'running'],
  },
  {
    name: 'a delete of a machine with snapshots',
    prepare: withTwo,
    act: (app, { machineId }) => destroyMachine(app, accountId, machineId, { deleteSnapshots: true }),
    story: storyOfDestroy(2),
    ends: ['destroyed', 'nothing'],
  },
  {
    name: 'a delete of a machine with a snapshot that keeps its disk',
    prepare: ofSnapshot(makeMachine),
    act: (app, { machineId }) =>
      destroyMachine(app, accountId, machineId, { deleteSnapshots: true, preserveStorage: true }),
    story: storyOfDestroy(1),
    ends: ['destroyed', 'nothing'],
  },
];

/** Expires the claims of the dead process, then waits until the replicas have finished all operations. */
async function recover(): Promise<void> {
  await sql`update operations set claim_expires_at = now() where claim_token is not null`.execute(db);
  await bed.settled(async () => {
    await Promise.all(bed.replicas.map(({ reconciler }) => reconciler.runOnce()));
    const query = db.selectFrom('operations').select('id').where('finished_at', 'is', null);
    return (await query.executeTakeFirst()) === undefined;
  });
}

/** Deletes everything that a step has left. Otherwise every pass of the reconciler would take longer. */
async function removeEverything(): Promise<void> {
  const machines = await db.selectFrom('machines').select('id').where('state', '<>', 'destroyed').execute();
  for (const { id } of machines) {
    const { status, text } = await api('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
    assert.equal(status, 200, text);
  }
  for (const { id } of await db.selectFrom('volumes').select('id').where('state', '=', 'available').execute()) {
    const { status, text } = await api('DELETE', `/v1/volumes/${id}`);
    assert.equal(status, 204, text);
  }
}

const MOST_STEPS = 80;

const FATES: Fate[] = ['dies', 'loses the answer'];

for (const fate of FATES) {
  describe(`a process that ${fate} at any step of an operation on a snapshot (CTL-3)`, () => {
    for (const { name, prepare, fault, act, story, ends } of CHANGES) {
      it(`${name}: it ends as ${ends.join(' or as ')}`, async () => {
        const seen = new Set<string>();
        let isMet = true;
        for (let step = 1; isMet; step++) {
          assert(step < MOST_STEPS, 'it comes to an end');
          const subject = await prepare();
          fault?.();
          isMet = await runWithFate(app, { fate, at: step }, (own) => act(own, subject));
          await recover();
          host.heal();
          const end = await story(subject);
          assert(ends.includes(end), `step ${step}: ${end}`);
          seen.add(end);
          await removeEverything();
        }
        // Once for all steps, because the check takes longer than a step.
        await checkAll(bed);
        if (fate === 'dies') assert.deepEqual([...seen].sort(), [...ends].sort());
      });
    }
  });
}
