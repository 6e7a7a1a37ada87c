// Tests what becomes of an operation when the database fails during it. The failure says nothing about the operation, so
// it is never undone for that: a retry, or the reconciler, goes on with it. Everybody who waits is told that the database
// failed, and not that there is a bug.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import type { App } from '../src/app.ts';
import { toServiceError } from '../src/http/errors.ts';
import { joinOperation } from '../src/operations/wait.ts';
import { attachVolume, detachVolume } from '../src/volumes/attach.ts';
import { type DatabaseFailure, type Fate, runWithFate } from './support/dying.ts';
import { checkAll } from './support/in-order.ts';
import { begin, createRows } from './support/operations-under-way.ts';
import type { Kind } from './support/pairs-table.ts';
import { holdRow } from './support/row-locks.ts';
import { createScenes, type Scene } from './support/scenes.ts';
import { startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

// A failed attempt is repeated only when a request asks for it.
const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  replicas: 2,
  timing: { claimTtlMs: 60_000, claimRenewMs: 30_000, retryMs: { first: 1_000_000, longest: 1_000_000 } },
});
const { api, host, accountId } = bed;
const { db } = bed.plane.app;
const scenes = createScenes(bed);
const ROWS = createRows(api, scenes);
const [, second] = bed.replicas;
assert(second);

afterEach(() => host.heal());

const operationRow = (id: string) => db.selectFrom('operations').selectAll().where('id', '=', id).executeTakeFirst();

describe('a request that waits for an operation', () => {
  const ask = (kind: Kind, { machine, volume, snapshot }: Scene) => {
    const options = { plane: second };
    if (kind === 'restore') return api('POST', `/v1/snapshots/${snapshot}/restore`, options);
    if (kind === 'start') return api('POST', `/v1/machines/${machine}/start`, options);
    const body = kind === 'attach' ? { body: { machine_id: machine } } : {};
    return api('POST', `/v1/volumes/${volume}/${kind}`, { ...options, ...body });
  };

  for (const kind of ['start', 'restore', 'attach', 'detach'] as const) {
    it(`is told 503 when the process that performs the ${kind} loses the database, and a retry is a 200`, async () => {
      const scene = scenes.emptyScene();
      await ROWS[kind].arrange(scene);
      const { first, operation } = await begin(bed, scenes, ROWS[kind].step, () => ROWS[kind].ask(scene), 'answerLate');
      const joined = ask(kind, scene);
      await somebodyWaitsFor(operation.id);
      // The process waits for this row when it records the result, and its connection breaks there.
      const row = await holdRow(bed.databaseUrl, 'machines', scene.machine);
      host.release();
      await row.isWaitedFor(1);
      assert.equal(await row.endWaiting(), 1);
      await row.release();
      for (const answer of await Promise.all([first, joined])) {
        assert.deepEqual([answer.status, answer.json.code], [503, 'database_unavailable'], answer.text);
        assert(Number(answer.headers.get('retry-after')) > 0);
      }
      const left = await operationRow(operation.id);
      assert.deepEqual([left?.undoing, left?.finished_at, left?.error_code], [false, null, 'database_unavailable']);
      assert.equal((await ask(kind, scene)).status, 200);
      assert.equal((await operationRow(operation.id))?.error_code, null);
      await checkAll(bed);
      await scenes.clear(scene);
    });
  }
});

const FAILURES: [string, DatabaseFailure][] = [
  ['rolls back because of a parallel transaction', { sqlstate: '40001' }],
  ['has a full disk', { sqlstate: '53100' }],
  ['does not get a lock in time', { sqlstate: '55P03' }],
  ['cannot read its disk', { sqlstate: '58030' }],
  ['breaks a TLS connection', { connection: Object.assign(new Error('bad record mac'), { code: 'ERR_SSL_BAD_MAC' }) }],
  ['sends what pg does not expect', { connection: new Error('Received unexpected dataRow message from backend.') }],
];
/** What clients may be told, and what is written into the operation. */
const TOLD: readonly (string | null | undefined)[] = ['database_unavailable', 'fleet_capacity'];

const latestOperation = (volume: string) =>
  db
    .selectFrom('operations')
    .selectAll()
    .where('volume_id', '=', volume)
    .orderBy('created_at', 'desc')
    .limit(1)
    .executeTakeFirst();

const holderOf = async (volume: string) =>
  (await db.selectFrom('volumes').select('machine_id').where('id', '=', volume).executeTakeFirstOrThrow()).machine_id;

describe('a database that fails at any statement of an attach and a detach', () => {
  for (const [how, fate] of FAILURES) {
    it(`and ${how}: it is told, nothing is undone, and a retry finishes it`, async () => {
      const [machine, volume] = [await scenes.makeMachine(), await scenes.makeVolume()];
      const changes = {
        attach: (app: App) => attachVolume(app, accountId, volume, { machine_id: machine }),
        detach: (app: App) => detachVolume(app, accountId, volume),
      };
      const isMet = { attach: true, detach: true };
      for (let at = 1; isMet.attach || isMet.detach; at++) {
        for (const [kind, change] of Object.entries(changes) as [keyof typeof changes, typeof changes.attach][]) {
          let error: unknown;
          isMet[kind] = await runWithFate(bed.plane.app, { fate, at }, (own) =>
            change(own).catch((thrown: unknown) => {
              error = thrown;
            }),
          );
          const where = `${kind}, step ${at}: ${error}`;
          if (error !== undefined) assert(TOLD.includes(toServiceError(error).code), where);
          const left = await latestOperation(volume);
          assert.notEqual(left?.undoing, true, where);
          if (left?.finished_at === null) assert(TOLD.includes(left.error_code), `${where}, ${left.error_code}`);
          const wanted = kind === 'attach' ? machine : null;
          if ((await holderOf(volume)) !== wanted) {
            await change(second.app).catch((thrown: unknown) => assert.fail(`${where}, then ${thrown}`));
          }
          assert.equal(await holderOf(volume), wanted, where);
        }
      }
      await checkAll(bed);
    });
  }
});

describe('a database that fails while the refusal of the host is recorded', () => {
  const FATES: [string, Fate | DatabaseFailure][] = [
    ['rolls back because of a parallel transaction', { sqlstate: '40001' }],
    ['breaks the connection', { connection: new Error('The connection broke.') }],
    ['loses an answer', 'loses the answer'],
  ];
  for (const [how, fate] of FATES) {
    it(`and ${how}: the refusal is told only when nothing is done after it`, async () => {
      const [machine, volume] = [await scenes.makeMachine(), await scenes.makeVolume()];
      const attaching = (app: App) => attachVolume(app, accountId, volume, { machine_id: machine });
      const told = new Set<string>();
      for (let at = 1, isMet = true; isMet; at++) {
        host.stuck.add(volume);
        let code = 'none';
        isMet = await runWithFate(bed.plane.app, { fate, at }, (own) =>
          attaching(own).catch((error: unknown) => {
            code = toServiceError(error).code;
          }),
        );
        told.add(code);
        host.stuck.clear();
        // A process that does not know whether its operation was inserted leaves it claimed.
        await sql`update operations set claim_expires_at = now() where finished_at is null`.execute(db);
        const left = await latestOperation(volume);
        const mayBeDone = left?.finished_at === null && !left.undoing;
        assert(code !== 'conflict' || !mayBeDone, `step ${at}: it was refused, and can still be done`);
        if (left?.finished_at === null && left.undoing) {
          assert.equal(left.error_code, 'conflict', `step ${at}: those who wait hear why`);
          await joinOperation(second.app, left.id, performance.now() + 60_000).catch(() => undefined);
        }
        await attaching(second.app);
        await detachVolume(second.app, accountId, volume);
      }
      for (const code of told) assert(code === 'conflict' || code === 'host_unavailable' || TOLD.includes(code), code);
      assert(told.has('conflict'));
      await checkAll(bed);
    });
  }
});

describe('a statement with a bug', () => {
  it('in an attach is a 500 that keeps its cause for the log, and the attach is undone', async () => {
    const [machine, volume] = [await scenes.makeMachine(), await scenes.makeVolume()];
    const undone: number[] = [];
    for (let at = 1, isMet = true; isMet; at++) {
      let error: unknown;
      isMet = await runWithFate(bed.plane.app, { fate: { sqlstate: '42P01' }, at }, (own) =>
        attachVolume(own, accountId, volume, { machine_id: machine }).catch((thrown: unknown) => {
          error = thrown;
        }),
      );
      const left = await latestOperation(volume);
      if (error !== undefined && toServiceError(error).code === 'internal_error' && left?.undoing) {
        undone.push(at);
        assert.match(String((error as Error).cause), /The test says so/);
        assert.deepEqual([left.finished_at === null, left.error_code], [false, 'internal_error']);
        assert.equal(await holderOf(volume), null);
      }
      await attachVolume(second.app, accountId, volume, { machine_id: machine });
      await detachVolume(second.app, accountId, volume);
    }
    assert(undone.length > 0);
    await checkAll(bed);
  });
});
