// What the tests of moves between hosts share: moves that a chosen process performs, where the only usable copy is, and
// what is cleaned up after each test.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../../src/app.ts';
import type { Tx } from '../../src/db/database.ts';
import { inTransaction } from '../../src/db/transaction.ts';
import { lockMachine } from '../../src/machines/store.ts';
import { beginMachineMove, beginVolumeMove } from '../../src/moves/begin.ts';
import { performClaimed } from '../../src/operations/perform.ts';
import { claimNow } from '../../src/operations/store.ts';
import { type Fate, runWithFate } from './dying.ts';
import type { FakeHost } from './fake-host.ts';
import { checkAll } from './in-order.ts';
import type { TestBed } from './test-bed.ts';

export const hostIdOf = (host: FakeHost): string => host.info.host_id;

/**
 * What a host has of a machine, volume or snapshot: the content of its disk, or the id of a snapshot, which has no
 * content here. Undefined: nothing.
 */
export const contentOn = (host: FakeHost, id: string): string | undefined =>
  host.machines.get(id)?.disk ?? host.contents.get(id)?.content ?? host.snapshots.get(id)?.snapshot_id;

export function createMoveActs(bed: TestBed) {
  const { app } = bed.plane;
  const { db } = app;
  const hosts = () => [bed.host, ...bed.remotes];
  const hostOf = (id: string): FakeHost => {
    const host = hosts().find((one) => hostIdOf(one) === id);
    assert(host);
    return host;
  };
  /** Lets new machines and volumes come to these hosts only. */
  const openOnly = async (...open: FakeHost[]): Promise<void> => {
    const ids = open.map(hostIdOf);
    await sql`update hosts set draining = not (id = any(${ids}::uuid[])), emptying = false`.execute(db);
    for (const replica of bed.replicas) replica.app.hostTable.expire();
  };
  const unfinished = () =>
    db
      .selectFrom('operations')
      .selectAll()
      .where('finished_at', 'is', null)
      .where('kind', 'in', ['move', 'remove_copy'])
      .execute();
  /** Waits until every move and every removal of a copy has ended. */
  const settled = () => bed.settled(async () => (await unfinished()).length === 0);
  /** Runs the reconciler until all moves have ended, as after the death of the process that performed one. */
  const recover = async (): Promise<void> => {
    for (let pass = 0; pass < 20; pass++) {
      await sql`update operations set run_at = now(), claim_expires_at = now() - interval '1 second'
        where finished_at is null and kind in ('move', 'remove_copy')`.execute(db);
      await bed.plane.reconciler.runOnce();
      if ((await unfinished()).length === 0) return;
    }
    assert.fail(`moves do not end: ${JSON.stringify(await unfinished())}`);
  };
  /** Begins a move that no reconciler performs until `recover`. Returns the id of its operation. */
  const beginAside = (begin: (tx: Tx) => Promise<string | undefined>): Promise<string> =>
    inTransaction(db, async (tx) => {
      const id = await begin(tx);
      assert(id);
      await tx.updateTable('operations').set({ run_at: sql`now() + interval '1 hour'` }).where('id', '=', id).execute();
      return id;
    });
  const beginMachine = (id: string, to: FakeHost): Promise<string> =>
    beginAside(async (tx) => {
      const machine = await lockMachine(tx, id);
      assert(machine);
      return beginMachineMove(app, tx, machine, { toHostId: hostIdOf(to), actor: 'system:operator' });
    });
  const beginVolume = (id: string, from: FakeHost, to: FakeHost): Promise<string> =>
    beginAside((tx) =>
      beginVolumeMove(
        app,
        tx,
        { id, account_id: bed.accountId },
        { fromHostId: hostIdOf(from), toHostId: hostIdOf(to), actor: 'user' },
      ),
    );
  const perform = async (own: App, id: string): Promise<void> => {
    const claimed = await claimNow(own, id);
    if (claimed) await performClaimed(own, claimed);
  };

  /** Returns the host that the row of a machine, volume or snapshot names, or undefined when there is no such row. */
  const hostInRow = async (id: string): Promise<FakeHost | undefined> => {
    const { rows } = await sql<{ host_id: string }>`
      select host_id from machines where id = ${id} and state <> 'destroyed'
      union all select host_id from volumes where id = ${id}
      union all select host_id from snapshots where id = ${id}`.execute(db);
    return rows[0] && hostOf(rows[0].host_id);
  };
  /**
   * Checks that the row of the object names this host, and that only this host has the object, with this content. If
   * `host` is undefined, checks that there is no row and that no host has the object.
   */
  const checkIsOn = async (host: FakeHost | undefined, id: string, content: string | undefined): Promise<void> => {
    assert.equal(await hostInRow(id), host);
    assert.deepEqual(
      hosts().map((one) => contentOn(one, id)),
      hosts().map((one) => (one === host ? content : undefined)),
    );
  };

  /** Ends the faults of a test, deletes all machines and volumes, and checks that rows and hosts agree. */
  const cleanUp = async (): Promise<void> => {
    for (const host of hosts()) {
      host.heal();
      host.lacksImages = false;
      host.leavesSnapshots = false;
      delete host.info.processor;
    }
    await openOnly(...hosts());
    await settled();
    const { machines } = (await bed.api('GET', '/v1/machines')).json;
    for (const { id } of machines) await bed.api('DELETE', `/v1/machines/${id}?delete_snapshots=true`);
    const { volumes } = (await bed.api('GET', '/v1/volumes')).json;
    for (const { id } of volumes) assert.equal((await bed.api('DELETE', `/v1/volumes/${id}`)).status, 204);
    await settled();
    await checkAll(bed);
  };

  return {
    ...{ hosts, hostOf, openOnly, unfinished, settled, recover, cleanUp, hostInRow, checkIsOn },
    ...{ beginAside, beginMachine, beginVolume, perform },
  };
}

/** What moves in the tests of every fate: its content by id. All of it is on the first host. */
export type Moving = { contents: Record<string, string> };

/**
 * Defines tests in which the process of a move from the first host to the second one fails at each step, whether the
 * second host takes the copy or refuses it. Afterwards one host has everything.
 */
export function testEveryFate<T extends Moving>(
  bed: TestBed,
  acts: {
    make: () => Promise<T>;
    begin: (moving: T) => Promise<string>;
    remove: (moving: T) => Promise<unknown>;
  },
): void {
  const { app } = bed.plane;
  const moves = createMoveActs(bed);
  const [second] = bed.remotes as [FakeHost];
  const ends: [string, ServiceError | undefined, FakeHost][] = [
    ['succeeds', undefined, second],
    ['is refused', new ServiceError('conflict', 'The host lacks the image.'), bed.host],
  ];
  for (const fate of ['dies', 'loses the answer'] satisfies Fate[]) {
    for (const [name, refusal, end] of ends) {
      it(`the process of a move that ${name} ${fate} at any step: one host has it, and it ends (CTL-14)`, async () => {
        for (let at = 1, goesOn = true; goesOn; at++) {
          const moving = await acts.make();
          const contents = Object.entries(moving.contents);
          const operation = await acts.begin(moving);
          if (refusal) second.fault('receiveCopy', refusal);
          goesOn = await runWithFate(app, { fate, at }, (own) => moves.perform(own, operation));
          for (const [id, content] of contents) {
            const host = await moves.hostInRow(id);
            assert(host);
            assert.equal(contentOn(host, id), content, `step ${at}`);
          }
          await moves.recover();
          for (const [id, content] of contents) await moves.checkIsOn(end, id, content);
          second.heal();
          await acts.remove(moving);
        }
        await checkAll(bed);
      });
    }
  }
}
