// Crashes the process that changes a volume between any two steps (SQL statements or host calls), or drops the answer
// to one step. Then a replica finishes the work: the volume must reach an allowed end, and rows, quotas, feed and host
// must agree.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import type { App } from '../src/app.ts';
import { destroyMachine } from '../src/machines/actions.ts';
import { attachVolume, detachVolume } from '../src/volumes/attach.ts';
import { createVolume } from '../src/volumes/create.ts';
import { deleteVolume } from '../src/volumes/destroy.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { startTestBed } from './support/test-bed.ts';
import { createVolumeActs, VOLUME_GB } from './support/volumes.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  // These intervals are long, because the test itself starts a reconciler pass after each crash.
  timing: { reconcileMs: 2_000, reconcileJobsMs: 2_000 },
});
const { api, host, accountId } = bed;
const { app } = bed.plane;
const { db } = app;
const { makeMachine, makeStopped, makeVolume, attached, rowOf, entriesOf, onHost } = createVolumeActs(bed);

afterEach(() => host.heal());

/** The volume that is changed and the machine that it is attached to. */
type Subject = { machineId: string; id: string };
type Change = {
  name: string;
  prepare: () => Promise<Subject>;
  /** Sets a host fault before the operation begins. */
  fault?: (subject: Subject) => void;
  act: (app: App, subject: Subject) => Promise<unknown>;
  /** The allowed results. Each of them must occur at least once over all steps. */
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
    // The change is refused only once. If the process dies before it learns of the refusal, the retry may succeed.
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

/**
 * Returns what the feed says about the volume, such as `attached, detached`, after it has checked that row and host
 * agree with it.
 */
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

/** Expires the claims of the dead process, then runs the reconciler until all operations have finished. */
async function recover(): Promise<void> {
  await sql`update operations set claim_expires_at = now() where claim_token is not null`.execute(db);
  await bed.settled(async () => {
    await bed.plane.reconciler.runOnce();
    const query = db.selectFrom('operations').select('id').where('finished_at', 'is', null);
    return (await query.executeTakeFirst()) === undefined;
  });
}

/** Removes the volume and the machine through the API, so that the next step starts empty. */
async function remove({ id, machineId }: Subject, story: string): Promise<void> {
  if (machineId !== '') await api('DELETE', `/v1/machines/${machineId}`);
  if (story !== 'deleted') assert.equal((await api('DELETE', `/v1/volumes/${id}`)).status, 204);
}

const MOST_STEPS = 60;
const FATES: Fate[] = ['dies', 'loses the answer'];
/** The changes that are also tested with lost answers. The other changes go through the same steps. */
const PLAIN = ['attach to a running machine', 'detach from a running machine', 'delete'];

for (const fate of FATES) {
  describe(`a process that ${fate} at any step of an operation on a volume (CTL-3)`, () => {
    for (const { name, prepare, fault, act, ends } of CHANGES) {
      if (fate !== 'dies' && !PLAIN.includes(name)) continue;

      it(`${name}: it ends as ${ends.join(' or as ')}`, async () => {
        const seen = new Set<string>();
        let isMet = true;
        for (let step = 1; isMet; step++) {
          assert(step < MOST_STEPS, 'it comes to an end');
          const subject = await prepare();
          fault?.(subject);
          isMet = await runWithFate(app, { fate, at: step }, (own) => act(own, subject));
          await recover();
          host.heal();
          const story = await storyOf(subject);
          assert(ends.includes(story), `step ${step}: ${story}`);
          seen.add(story);
          await checkAll(bed);
          await remove(subject, story);
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
        let isMet = true;
        for (let step = 1; isMet; step++) {
          const before = [await count(), await created()];
          if (fault) host.fault('ensureVolume', fault, 1);
          isMet = await runWithFate(app, { fate, at: step }, (own) =>
            createVolume(own, accountId, { size_gb: VOLUME_GB }),
          );
          await recover();
          host.heal();
          const made = (await count()) - (before[0] ?? 0);
          assert.equal((await created()) - (before[1] ?? 0), made, `step ${step}`);
          madeBy.add(made);
          assert.equal(host.volumes.size, await count());
        }
        // Once for all steps, because the check takes longer than a step.
        await checkAll(bed);
        assert.deepEqual([...madeBy].sort(), fault ? [0] : [0, 1]);
      });
    }
  });
}
