// What the tests of moves between hosts share: where the only usable copy is, and a move that a chosen process performs.
import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { App } from '../../src/app.ts';
import type { Tx } from '../../src/db/database.ts';
import { inTransaction } from '../../src/db/transaction.ts';
import { performClaimed } from '../../src/operations/perform.ts';
import { claimNow } from '../../src/operations/store.ts';
import type { FakeHost } from './fake-host.ts';
import type { TestBed } from './test-bed.ts';

export function createMoveActs(bed: TestBed) {
  const { app } = bed.plane;
  const { db } = app;
  const hosts = () => [bed.host, ...bed.remotes];
  const hostOf = (id: string): FakeHost => {
    const host = hosts().find(({ info }) => info.host_id === id);
    assert(host);
    return host;
  };
  /** Lets new machines and volumes come to these hosts only. */
  const openOnly = async (...open: FakeHost[]): Promise<void> => {
    const ids = open.map(({ info }) => info.host_id);
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
  const perform = async (own: App, id: string): Promise<void> => {
    const claimed = await claimNow(own, id);
    if (claimed) await performClaimed(own, claimed);
  };
  return { hosts, hostOf, openOnly, unfinished, settled, recover, beginAside, perform };
}
