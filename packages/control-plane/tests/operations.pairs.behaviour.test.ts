// Tests every pair of an unfinished operation and a request that arrives meanwhile, from one table. The request joins
// the operation, waits for its end, cancels it, is refused, or runs beside it. Each table cell is one test, in which
// the fake host does not answer the operation's call until the test releases it.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { checkAll } from './support/in-order.ts';
import { begin, createRows } from './support/operations-under-way.ts';
import { type Cell, COLUMNS, type Column, KINDS, type Kind, TABLE } from './support/pairs-table.ts';
import { until } from './support/postgres.ts';
import { added, createScenes, withoutTimes } from './support/scenes.ts';
import { createRequests } from './support/second-requests.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  replicas: 2,
  timing: { claimTtlMs: 30_000, claimRenewMs: 1_000 },
});
const { api, host } = bed;
const scenes = createScenes(bed);
const { operationsOf, countEntries, changesSince } = scenes;
const ROWS = createRows(api, scenes);
const ASKED = createRequests(api, scenes);
afterEach(() => host.heal());

async function runCell(kind: Kind, column: Column, cell: Cell): Promise<void> {
  const row = ROWS[kind];
  const request = ASKED[column];
  const scene = scenes.emptyScene();
  await row.arrange(scene);
  await request.prepare?.(scene, kind);
  const feed = await countEntries();
  const underWay = await begin(bed, scenes, row.step, () => row.ask(scene));
  const { operation, first } = underWay;
  assert.equal(operation.kind, kind);
  scene.machine ||= operation.machine_id ?? '';
  scene.volume ||= operation.volume_id ?? '';
  scene.snapshot ||= operation.snapshot_id ?? '';
  const [held, rowsBefore] = [host.calls.length, await operationsOf(scene)];

  let hasAnswered = false;
  const second = request.ask(scene).finally(() => {
    hasAnswered = true;
  });
  const mustWait = cell === 'joined' || cell.startsWith('waits');
  if (mustWait) {
    await Promise.race([
      somebodyWaitsFor(operation.id),
      second.then((answer) => assert.fail(`at once: ${answer.text}`)),
    ]);
    assert(!hasAnswered && !underWay.hasEnded());
    assert.deepEqual(changesSince(held), [], 'the host is asked for nothing while it waits');
    assert.equal((await operationsOf(scene)).length, rowsBefore.length, 'no second operation was written');
  } else {
    const answer = await second;
    assert(!underWay.hasEnded(), 'the operation goes on');
    const status = cell === 'cancels' ? 200 : Number(cell.replace('beside ', ''));
    assert.equal(answer.status, status, answer.text);
  }
  host.release();
  const [firstAnswer, secondAnswer] = await Promise.all([first, second]);
  await until(
    async () => !(await operationsOf(scene)).some((one) => one.finished_at === null),
    'all has ended',
    60_000,
  );

  if (cell === 'cancels') {
    assert.deepEqual(
      [firstAnswer.status, firstAnswer.json],
      [409, { detail: 'The machine was deleted meanwhile.', code: 'conflict' }],
    );
  } else assert.equal(firstAnswer.status, row.status, firstAnswer.text);
  const now = await countEntries();
  const total = (entry: string) => added(feed, now, entry);
  if (cell === 'cancels') {
    // Destroying a machine detaches its volumes, and the feed records that. So a cancelled detach still has its entry.
    assert.equal(total(row.entry), kind === 'detach' ? 1 : 0, `${row.entry}: it was not done`);
  } else if (cell === 'joined') {
    assert.equal(secondAnswer.status, row.status, secondAnswer.text);
    assert.deepEqual(withoutTimes(secondAnswer.json), withoutTimes(firstAnswer.json), 'both get the same result');
    assert.deepEqual(changesSince(held), [], 'the host was asked once');
  } else if (cell === 'waits, noop') assert.equal(secondAnswer.status, 200, secondAnswer.text);
  else if (cell.startsWith('waits')) assert.equal(secondAnswer.status, Number(cell.slice(6)), secondAnswer.text);
  if (mustWait && cell !== 'joined') await scenes.checkOrder(scene, operation.id);

  if (cell !== 'cancels') {
    const twice = request.entry === row.entry && isDone(cell, secondAnswer) && cell !== 'joined';
    assert.equal(total(row.entry), twice ? 2 : 1, row.entry);
  }
  if (request.entry && request.entry !== row.entry) {
    // Destroying a machine detaches its volumes, and the feed records that, although the detach request itself was
    // refused.
    const isTold =
      (isDone(cell, secondAnswer) && !isNothing(kind, column, cell)) || (kind === 'destroy' && column === 'detach');
    assert.equal(total(request.entry), isTold ? 1 : 0, request.entry);
  }
  await checkAll(bed);
  await scenes.clear(scene);
}

const isDone = (cell: Cell, { status }: Answer): boolean => status < 300 && cell !== 'waits, noop';

/**
 * Returns whether the request succeeds without a change: a start of a running machine, or an attach of an attached
 * volume.
 */
const isNothing = (kind: Kind, column: Column, cell: Cell): boolean =>
  cell.startsWith('beside') && (column === 'start' || (column === 'attach the same' && kind === 'delete_snapshot'));

for (const kind of KINDS) {
  describe(`beside ${kind}`, () => {
    for (const column of COLUMNS) {
      const cell = TABLE[kind][column];
      if (cell.startsWith('-')) continue;
      it(`${kind} under way, ${column}: ${cell}`, () => runCell(kind, column, cell));
    }
  });
}
