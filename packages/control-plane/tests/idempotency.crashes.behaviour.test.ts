// Crashes the process that creates an object for an Idempotency-Key between any two steps (SQL statements or host
// calls), or drops the answer to one step. The client repeats the request at another replica at once. Afterwards there
// is exactly one object, and every further replay returns it.
import assert from 'node:assert/strict';
import { before, it } from 'node:test';
import { sql } from 'kysely';
import type { App } from '../src/app.ts';
import { createMachine } from '../src/machines/create.ts';
import { createSnapshot } from '../src/snapshots/create.ts';
import { createVolume } from '../src/volumes/create.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({
  replicas: 2,
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { reconcileMs: 50, reconcileJobsMs: 100, unknownGraceMs: 100 },
  bounds: { snapshotsPerAccount: 1000 },
});
const { api, host, accountId } = bed;
const { app } = bed.plane;
const other = bed.replicas[1] ?? bed.plane;
const { db } = app;

let machine: string;
before(async () => {
  machine = (await api('POST', '/v1/machines', { body: { memory_mb: 128 } })).json.id;
});

type Kind = {
  name: 'machine' | 'volume' | 'snapshot';
  call: 'ensure' | 'ensureVolume' | 'takeSnapshot';
  path: () => string;
  body: object;
  create: (app: App, key: string) => Promise<unknown>;
  /** Returns the ids of all objects of this kind that the host has. */
  onHost: () => Iterable<string>;
};

const KINDS: Kind[] = [
  {
    name: 'machine',
    call: 'ensure',
    path: () => '/v1/machines',
    body: { memory_mb: 128 },
    create: (own, key) => createMachine(own, accountId, { memory_mb: 128 }, key),
    onHost: () => host.machines.keys(),
  },
  {
    name: 'volume',
    call: 'ensureVolume',
    path: () => '/v1/volumes',
    body: { size_gb: 5 },
    create: (own, key) => createVolume(own, accountId, { size_gb: 5 }, key),
    onHost: () => host.volumes.keys(),
  },
  {
    name: 'snapshot',
    call: 'takeSnapshot',
    path: () => `/v1/machines/${machine}/snapshots`,
    body: { name: 'x' },
    create: (own, key) => createSnapshot(own, accountId, machine, { name: 'x' }, key),
    onHost: () => host.snapshots.keys(),
  },
];

const MOST_STEPS = 80;
const FATES: Fate[] = ['dies', 'loses the answer'];

for (const fate of FATES) {
  for (const { name, call, path, body, create, onHost } of KINDS) {
    const idsOf = async () =>
      (await db.selectFrom(`${name}s`).select('id').where('account_id', '=', accountId).execute()).map(({ id }) => id);

    for (const fault of [undefined, 'fail', 'failAfter'] as const) {
      const hostFails = fault ? `, and whose host answers with ${fault},` : '';
      it(`a process that ${fate} at any step of the create of a ${name}${hostFails} and a retry make one (CTL-1)`, async () => {
        const statuses = new Set<number>();
        let isMet = true;
        for (let step = 1; isMet; step++) {
          assert(step < MOST_STEPS, 'it comes to an end');
          const key = `${name} ${fate} ${fault} ${step}`;
          const before = new Set(await idsOf());
          if (fault) host.fault(call, fault, 1);
          isMet = await runWithFate(app, { fate, at: step }, (own) => create(own, key));
          host.heal();
          await sql`update operations set claim_expires_at = now() where claim_token is not null`.execute(db);
          const send = () => api('POST', path(), { body, headers: { 'idempotency-key': key }, plane: other });
          const answer = await send();
          assert([200, 201].includes(answer.status), `step ${step}: ${answer.text}`);
          statuses.add(answer.status);
          const made = (await idsOf()).filter((id) => !before.has(id));
          assert.deepEqual(made, [answer.json.id], `step ${step}`);
          const replay = await send();
          assert.deepEqual([replay.status, replay.json.id], [200, answer.json.id], `step ${step}`);
          await bed.settled(async () => {
            const rows = new Set(await idsOf());
            return [...onHost()].every((id) => rows.has(id));
          });
          // Otherwise every pass of the reconciler would take longer.
          const removed = await api('DELETE', `/v1/${name}s/${answer.json.id}`);
          assert([200, 204].includes(removed.status), removed.text);
        }
        // Once for all steps, because the check takes longer than a step.
        await checkAll(bed);
        // The creates of volumes and snapshots that the host refuses are undone. That of a machine is attempted again,
        // so the client's retry may join it, which depends on the moment.
        if (fault && name === 'machine') assert(statuses.has(201));
        else assert.deepEqual([...statuses].sort(), fault ? [201] : [200, 201]);
      });
    }
  }
}
