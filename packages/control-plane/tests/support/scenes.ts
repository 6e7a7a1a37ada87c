// What the tests of operations share: the machine, volume and snapshot of one test, and what became of them.
import assert from 'node:assert/strict';
import type { Operation } from './fake-host/calls.ts';
import type { Answer, TestBed } from './test-bed.ts';

/** The ids of what one test works on. An empty string: the test has none, or none yet. */
export type Scene = { machine: string; volume: string; snapshot: string; otherSnapshot?: string; otherVolume?: string };

/** Drops the operation from an answer, since it may differ between two answers that report the same result. */
export const withoutTimes = (json: Answer['json']): Answer['json'] => (json ? { ...json, operation: null } : json);

const CHANGES: readonly Operation[] = [
  ...(['ensure', 'delete', 'startJob', 'ensureVolume', 'deleteVolume', 'takeSnapshot', 'deleteSnapshot'] as const),
];

export type Scenes = ReturnType<typeof createScenes>;

/** Returns short functions that make and clear scenes on one test bed. */
export function createScenes({ api, plane, host, accountId }: TestBed) {
  const { db } = plane.app;
  const make = async (path: string, body: object, status = 201): Promise<string> => {
    const answer = await api('POST', path, { body });
    assert.equal(answer.status, status, answer.text);
    return answer.json.id;
  };
  const makeMachine = () => make('/v1/machines', { memory_mb: 128 });
  const makeVolume = () => make('/v1/volumes', { size_gb: 5 });
  const makeSnapshot = (machine: string) => make(`/v1/machines/${machine}/snapshots`, {});
  const attach = (volume: string, machine: string) =>
    api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: machine } });
  const stopped = async (): Promise<string> => {
    const id = await makeMachine();
    assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
    return id;
  };
  const emptyScene = (): Scene => ({ machine: '', volume: '', snapshot: '' });
  /** Removes everything that one table cell created, so that the next cell starts with an empty host. */
  async function clear({ machine, volume, otherVolume }: Scene): Promise<void> {
    const answer = await api('DELETE', `/v1/machines/${machine}?delete_snapshots=true`);
    assert([200, 404].includes(answer.status), answer.text);
    for (const id of [volume, otherVolume]) if (id) await api('DELETE', `/v1/volumes/${id}`);
  }
  const unfinished = () =>
    db.selectFrom('operations').selectAll().where('finished_at', 'is', null).where('kind', '<>', 'expire').execute();
  const operationsOf = ({ machine, volume, snapshot }: Scene) => {
    const id = (text: string) => (text === '' ? null : text);
    return db
      .selectFrom('operations')
      .selectAll()
      .where('kind', '<>', 'expire')
      .where((is) =>
        is.or([
          is('machine_id', '=', id(machine)),
          is('volume_id', '=', id(volume)),
          is('snapshot_id', '=', id(snapshot)),
        ]),
      )
      .execute();
  };
  /** Asserts that the request's operation was created only after the first operation had finished. */
  async function checkOrder(scene: Scene, firstId: string): Promise<void> {
    const rows = await operationsOf(scene);
    const first = rows.find(({ id }) => id === firstId);
    if (!first) return;
    assert(first.finished_at);
    for (const { id, created_at, kind } of rows) {
      if (id === firstId || created_at < first.created_at) continue;
      assert(created_at >= first.finished_at, `the ${kind} began before the end of the ${first.kind}`);
    }
  }
  const rowOf = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  /** Returns the actions of a machine in the activity feed, oldest first. */
  const actionsOf = async (machine: string): Promise<string[]> => {
    const { activity } = (await api('GET', `/v1/machines/${machine}/activity?page_size=200`)).json;
    return activity.map(({ action }: { action: string }) => action).reverse();
  };
  /** Returns the entries of the account's activity feed, by action. */
  const countEntries = async () => {
    const rows = await db.selectFrom('activity').select('action').where('account_id', '=', accountId).execute();
    return Map.groupBy(rows, (row) => row.action as string);
  };
  /** Returns the calls that change something and that the host has received since its call number `from`. */
  const changesSince = (from: number) => host.calls.slice(from).filter(({ operation }) => CHANGES.includes(operation));
  return {
    ...{ emptyScene, makeMachine, makeVolume, makeSnapshot, attach, stopped, clear },
    ...{ unfinished, operationsOf, checkOrder, rowOf, actionsOf, countEntries, changesSince },
  };
}

type Counts = ReadonlyMap<string, readonly unknown[]>;
/** How many entries of an action came between two counts. */
export const added = (before: Counts, now: Counts, action: string): number =>
  (now.get(action)?.length ?? 0) - (before.get(action)?.length ?? 0);
