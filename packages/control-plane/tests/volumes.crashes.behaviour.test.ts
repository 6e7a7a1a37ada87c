// CTL-3: the process that changes a volume dies between any two of its steps, statements and host calls alike. Two other
// replicas bring it to one of the two ends it may have; then rows, quotas, feed and host say the same.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import type { App } from '../src/app.ts';
import { destroyMachine } from '../src/machines/destroy.ts';
import { attachVolume, detachVolume } from '../src/volumes/attach.ts';
import { createVolume } from '../src/volumes/create.ts';
import { deleteVolume } from '../src/volumes/destroy.ts';
import { runUntilDeath } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs, VOLUME_GB } from './support/volumes.ts';

const bed = await startTestBed({
  replicas: 2,
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { reconcileMs: 50 },
});
const { api, host, accountId } = bed;
const { app } = bed.plane;
const { db } = app;
const { makeMachine, makeStopped, makeVolume, attach, attached, rowOf, entriesOf, onHost } = createVolumeActs(bed);

afterEach(() => host.heal());

/** What a change is made of and what it is made to. */
type Subject = { machineId: string; id: string };
type Change = {
  name: string;
  prepare: () => Promise<Subject>;
  /** What the host is told to do first, wherever the process is then. */
  fault?: (subject: Subject) => void;
  act: (app: App, subject: Subject) => Promise<unknown>;
  /** The ends that it may have, each seen at some step at least. */
  ends: string[];
};

const withVolume = (make: () => Promise<string>) => async (): Promise<Subject> => {
  const machineId = await make();
  return { machineId, id: await attached(machineId, '/data') };
};
const withFree = (make: () => Promise<string>) => async (): Promise<Subject> => ({
  machineId: await make(),
  id: await makeVolume(),
});
const withBroken = async (): Promise<Subject> => {
  const subject = await withVolume(makeMachine)();
  host.end(subject.machineId, 'failed', 'It died.');
  await bed.settled(async () => (await api('GET', `/v1/machines/${subject.machineId}`)).json.state === 'error');
  return subject;
};
const attaching = (app: App, { id, machineId }: Subject) =>
  attachVolume(app, accountId, id, { machine_id: machineId, mount_path: '/data' });
const detaching = (app: App, { id }: Subject) => detachVolume(app, accountId, id);
const refuse = ({ id }: Subject) => host.stuck.add(id);

const CHANGES: Change[] = [
  {
    name: 'attach to a running machine',
    prepare: withFree(makeMachine),
    act: attaching,
    ends: ['available', 'attached'],
  },
  {
    name: 'attach to a stopped machine',
    prepare: withFree(makeStopped),
    act: attaching,
    ends: ['available', 'attached'],
  },
  {
    name: 'attach that is refused',
    prepare: withFree(makeMachine),
    fault: refuse,
    act: attaching,
    ends: ['available'],
  },
  {
    name: 'attach that is refused half-way',
    prepare: withFree(makeMachine),
    fault: () => host.fault('ensure', 'failAfter', 1),
    act: attaching,
    // Who asks again after the death may get it.
    ends: ['available', 'attached'],
  },
  {
    name: 'detach from a running machine',
    prepare: withVolume(makeMachine),
    act: detaching,
    ends: ['attached', 'attached, detached'],
  },
  {
    name: 'detach from a stopped machine',
    prepare: withVolume(makeStopped),
    act: detaching,
    ends: ['attached', 'attached, detached'],
  },
  {
    name: 'detach that is refused',
    prepare: withVolume(makeMachine),
    fault: refuse,
    act: detaching,
    ends: ['attached'],
  },
  {
    name: 'detach from a machine in error',
    prepare: withBroken,
    act: detaching,
    ends: ['attached', 'attached, detached'],
  },
  {
    name: 'delete',
    prepare: async () => ({ machineId: '', id: await makeVolume() }),
    act: (app, { id }) => deleteVolume(app, accountId, id),
    ends: ['available', 'deleted'],
  },
  {
    name: 'delete of the machine it is attached to',
    prepare: withVolume(makeMachine),
    act: (app, { machineId }) => destroyMachine(app, accountId, machineId),
    ends: ['attached', 'attached, detached'],
  },
];

/** What the row and the feed say of a volume, which must be one story. */
async function storyOf({ id, machineId }: Subject): Promise<string> {
  const row = await rowOf(id);
  const entries = (await entriesOf(id)).slice(1).map((action) => action.replace('volume.', ''));
  const story = entries.join(', ') || 'available';
  assert.equal(row?.state, { deleted: undefined, attached: 'attached' }[story] ?? (row && 'available'), story);
  assert.equal(row?.machine_id ?? null, story === 'attached' ? machineId : null);
  const { state } = (await api('GET', `/v1/machines/${machineId}`)).json ?? {};
  if (state === 'running' || state === 'stopped')
    assert.deepEqual(onHost(machineId), story === 'attached' ? { [id]: '/data' } : {}, story);
  assert.equal(host.volumes.has(id), row !== undefined);
  return story;
}

/** The claims of the dead run out, and what they were of is ended by whoever finds it. */
async function recover(): Promise<void> {
  await sql`update machines set claim_expires_at = now() where claim_token is not null`.execute(db);
  await sql`update volumes set claim_expires_at = now() where claim_token is not null`.execute(db);
  await bed.settled(async () => {
    const volumes = await db
      .selectFrom('volumes')
      .select('id')
      .where((is) => is.or([is('change', 'is not', null), is('deleting', '=', true)]))
      .execute();
    const machines = await db
      .selectFrom('machines')
      .select('id')
      .where((is) => is.or([is('claim_token', 'is not', null), sql<boolean>`state <> 'error' and state <> desired`]))
      .execute();
    return volumes.length + machines.length === 0;
  });
}

const MOST_STEPS = 60;

describe('CTL-3: a process that dies at any step of', () => {
  for (const { name, prepare, fault, act, ends } of CHANGES) {
    it(`${name}: it ends as ${ends.join(' or as ')}`, async () => {
      const seen = new Set<string>();
      let died = true;
      for (let step = 1; died; step++) {
        assert(step < MOST_STEPS, 'it comes to an end');
        const subject = await prepare();
        fault?.(subject);
        died = await runUntilDeath(app, step, (dying) => act(dying, subject));
        await recover();
        host.heal();
        const story = await storyOf(subject);
        assert(ends.includes(story), `step ${step}: ${story}`);
        seen.add(story);
        await checkAll(bed);
        if (story === 'available') assert.equal((await attach(subject.id, await makeMachine())).status, 200);
      }
      assert.deepEqual([...seen].sort(), [...ends].sort());
    });
  }

  for (const fault of [undefined, 'fail', 'failAfter'] as const) {
    it(`create${fault ? ` that the host answers with ${fault}` : ''}: it is there whole, or nothing of it is`, async () => {
      const count = async () => (await db.selectFrom('volumes').select('id').execute()).length;
      const created = async () =>
        (await db.selectFrom('activity').select('id').where('action', '=', 'volume.created').execute()).length;
      const madeBy = new Set<number>();
      let died = true;
      for (let step = 1; died; step++) {
        const before = [await count(), await created()];
        if (fault) host.fault('ensureVolume', fault, 1);
        died = await runUntilDeath(app, step, (dying) => createVolume(dying, accountId, { size_gb: VOLUME_GB }));
        await recover();
        host.heal();
        const made = (await count()) - (before[0] ?? 0);
        assert.equal((await created()) - (before[1] ?? 0), made, `step ${step}`);
        madeBy.add(made);
        assert.equal(host.volumes.size, await count());
        await checkAll(bed);
      }
      assert.deepEqual([...madeBy].sort(), fault ? [0] : [0, 1]);
    });
  }
});
