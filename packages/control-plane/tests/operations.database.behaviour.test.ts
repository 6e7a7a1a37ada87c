// Tests what becomes of an operation when the database fails during it. The failure says nothing about the operation, so
// it is never undone for that: a retry, or the reconciler, goes on with it. Everybody who waits is told that the database
// failed, and not that there is a bug.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
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
const { api, host } = bed;
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
