// Tests pairs of operations of which one moves something to another host: what a request does that meets a move, or the
// removal of a copy that a move has left, and what a drain does that meets another operation. Afterwards one host has
// each machine and volume, with its content.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { sql } from 'kysely';
import { emptyDraining } from '../src/reconcilers/drain.ts';
import type { FakeHost } from './support/fake-host.ts';
import { contentOn, createMoveActs, hostIdOf } from './support/moves.ts';
import { begin, createRows } from './support/operations-under-way.ts';
import {
  type Cell,
  COLUMNS,
  type Column,
  KINDS,
  type Kind,
  MOVE_KINDS,
  MOVES,
  type MoveKind,
} from './support/pairs-table.ts';
import { createScenes, type Scene } from './support/scenes.ts';
import { createRequests } from './support/second-requests.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

const bed = await startTestBed({ remotes: [{}], timing: { claimTtlMs: 30_000, claimRenewMs: 1_000 } });
const { api, host: first } = bed;
const [second] = bed.remotes as [FakeHost];
const { app } = bed.plane;
const scenes = createScenes(bed);
const moves = createMoveActs(bed);
const ROWS = createRows(api, scenes);
const ASKED = createRequests(api, scenes);

afterEach(moves.cleanUp);

/** Makes the scene of a move from the first host to the second one. */
async function arrange(kind: MoveKind): Promise<Scene> {
  const scene = scenes.emptyScene();
  await moves.openOnly(kind === 'move of the volume' ? second : first);
  scene.machine = await scenes.makeMachine();
  await moves.openOnly(first);
  scene.volume = await scenes.makeVolume();
  if (kind === 'move of the volume') return scene;
  assert.equal((await scenes.attach(scene.volume, scene.machine)).status, 200);
  assert.equal((await api('POST', `/v1/machines/${scene.machine}/stop`)).status, 200);
  return scene;
}

const beginMove = (kind: MoveKind, { machine, volume }: Scene): Promise<string> =>
  kind === 'move of the volume' ? moves.beginVolume(volume, first, second) : moves.beginMachine(machine, second);

type Held = { id: string; ended: Promise<unknown> };

/** Begins a move, and returns when the second host has received a copy and does not answer. */
async function holdMove(kind: MoveKind, scene: Scene): Promise<Held> {
  const id = await beginMove(kind, scene);
  second.fault('receiveCopy', 'hang', 1);
  const before = second.callsOf('receiveCopy');
  const ended = moves.perform(app, id).catch((error: unknown) => error);
  await bed.settled(() => second.callsOf('receiveCopy') > before);
  return { id, ended };
}

/** Moves the machine, and returns when the first host has been asked to remove its copies and does not answer. */
async function holdRemoval(scene: Scene): Promise<Held> {
  const id = await beginMove('move of the machine', scene);
  const calls = () => first.callsOf('delete') + first.callsOf('deleteVolume');
  const before = calls();
  first.fault('delete', 'hang', 1);
  first.fault('deleteVolume', 'hang', 1);
  await moves.perform(app, id);
  await bed.settled(() => calls() === before + 2);
  return { id, ended: Promise.resolve() };
}

async function runCell(kind: MoveKind, column: Column, cell: Cell): Promise<void> {
  const request = ASKED[column];
  const scene = await arrange(kind);
  const { machine, volume } = scene;
  const [disk, content] = [contentOn(first, machine) ?? contentOn(second, machine), contentOn(first, volume)];
  const prepareOn = async (host: FakeHost) => {
    await moves.openOnly(host);
    await request.prepare?.(scene, kind);
    await moves.openOnly(first, second);
  };
  if (kind === 'move of the machine') await prepareOn(first);
  await moves.openOnly(first, second);
  const held = kind === 'remove_copy' ? await holdRemoval(scene) : await holdMove(kind, scene);
  if (kind !== 'move of the machine') await prepareOn(second);
  const changes = () => first.changeCount + second.changeCount;
  const changesBefore = changes();

  const asking = request.ask(scene);
  let answer: Answer;
  if (cell.startsWith('waits')) {
    await Promise.race([somebodyWaitsFor(held.id), asking.then(({ text }) => assert.fail(`at once: ${text}`))]);
    assert.equal(changes(), changesBefore, 'no host is asked for anything while it waits');
    for (const host of moves.hosts()) host.release();
    answer = await asking;
    await scenes.checkOrder(scene, held.id);
  } else {
    answer = await asking;
    const isCancelled = !(await moves.unfinished()).some((one) => one.id === held.id || kind === 'remove_copy');
    assert.equal(isCancelled, cell === 'cancels');
    for (const host of moves.hosts()) host.release();
  }
  await held.ended;
  await moves.settled();

  const statusOf: Record<string, number> = { 'waits, noop': 200, cancels: column === 'destroy' ? 200 : 204 };
  assert.equal(answer.status, statusOf[cell] ?? Number(cell.replace(/^\w+ /, '')), answer.text);
  await moves.checkIsOn(column === 'destroy' ? undefined : second, machine, disk);
  const isDeleted = column === 'delete the volume' && cell === 'cancels';
  const volumeStays = kind === 'move of the machine' && cell === 'cancels';
  await moves.checkIsOn(isDeleted ? undefined : volumeStays ? first : second, volume, content);
}

for (const kind of MOVE_KINDS) {
  describe(`beside the ${kind}`, () => {
    for (const column of COLUMNS) {
      const cell = MOVES[kind][column];
      if (cell.startsWith('-')) continue;
      it(`${kind} under way, ${column}: ${cell}`, () => runCell(kind, column, cell));
    }
  });
}

describe('a move back to the host', () => {
  it('is refused until the copy there is removed', async () => {
    const scene = await arrange('remove_copy');
    await moves.openOnly(first, second);
    await holdRemoval(scene);
    const beginBack = () => moves.beginMachine(scene.machine, first);
    await assert.rejects(beginBack(), /An earlier copy is still being deleted on that host/);
    first.release();
    await moves.settled();
    await moves.perform(app, await beginBack());
    await moves.settled();
    assert.equal((await scenes.rowOf(scene.machine)).host_id, hostIdOf(first));
  });
});

describe('a drain of the host', () => {
  /** Operations that leave something which can move, and the name of it in the scene. */
  const MOVES_AFTERWARDS: Partial<Record<Kind, 'machine' | 'volume'>> = { stop: 'machine', create_volume: 'volume' };

  for (const kind of KINDS) {
    const moved = MOVES_AFTERWARDS[kind];
    it(`moves nothing while the ${kind} is under way${moved ? `, and the ${moved} afterwards` : ''}`, async () => {
      const scene = scenes.emptyScene();
      await moves.openOnly(first);
      await ROWS[kind].arrange(scene);
      const { first: asking, operation } = await begin(bed, scenes, ROWS[kind].step, () => ROWS[kind].ask(scene));
      scene.machine ||= operation.machine_id ?? '';
      scene.volume ||= operation.volume_id ?? '';
      await moves.openOnly(second);
      await sql`update hosts set emptying = true where id = ${hostIdOf(first)}`.execute(app.db);
      await emptyDraining(app);
      assert.deepEqual(await moves.unfinished(), []);
      if (!moved) await moves.openOnly(first, second);
      const id = moved && scene[moved];
      const content = id && contentOn(first, id);
      first.release();
      const answer = await asking;
      assert.equal(answer.status, ROWS[kind].status, answer.text);
      if (id) {
        await bed.settled(async () => contentOn(second, id) !== undefined);
        await moves.settled();
        await moves.checkIsOn(second, id, content ?? contentOn(second, id));
      }
    });
  }
});
