// Removes a host from the service, for good: nothing connects to it any more. Its row stays, because rows of machines
// refer to it. With `force`, what is still on the host is given up first: it is recorded as lost, and clients can only
// delete it (removed-host.ts).
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { CHANNELS, notify } from '../db/notifications.ts';
import { inTransaction } from '../db/transaction.ts';
import { freeKeyOf } from '../idempotency/keys.ts';
import { lockMachine } from '../machines/store.ts';
import { cancelOperation } from '../operations/cancel.ts';
import { lockUnfinished } from '../operations/store.ts';
import { lockSnapshot } from '../snapshots/store.ts';
import { transition } from '../transitions/transition.ts';
import { lockVolume } from '../volumes/store.ts';
import { nameOfHost } from './store.ts';

/** Throws `not_found`, and `conflict` if the host has machines, volumes or snapshots and `force` is not set. */
export async function removeHost(app: App, hostId: string, force: boolean): Promise<void> {
  if (force) {
    // From here on no new machine or volume comes to the host, and no move away from it begins.
    await app.db.updateTable('hosts').set({ draining: true, emptying: false }).where('id', '=', hostId).execute();
    await giveUpAll(app, hostId);
  }
  const removed = await inTransaction(app.db, async (tx) => {
    // A create locks this row when it reserves room, so none can come between the check and the removal.
    const host = await tx
      .selectFrom('hosts')
      .select('removed_at')
      .where('id', '=', hostId)
      .forUpdate()
      .executeTakeFirst();
    if (!host) throw new ServiceError('not_found', 'There is no host with this id.');
    if (host.removed_at !== null) return false;
    if (!force) await checkEmpty(tx, hostId);
    const columns = { removed_at: sql<Date>`now()`, draining: true, listener_id: null, listener_until: null };
    await tx.updateTable('hosts').set(columns).where('id', '=', hostId).execute();
    await notify(tx, CHANNELS.hosts);
    return true;
  });
  if (removed) app.log.warn({ host_id: hostId, force }, 'a host was removed');
  await app.hosts.reload();
  // Deletes that waited for the host can be finished now.
  app.reconcileSoon();
}

async function checkEmpty(tx: Tx, hostId: string): Promise<void> {
  const { rows } = await sql<{ machines: number; volumes: number; snapshots: number }>`
    select (select count(*) from machines where host_id = ${hostId} and state <> 'destroyed') as machines,
      (select count(*) from volumes where host_id = ${hostId}) as volumes,
      (select count(*) from snapshots where host_id = ${hostId}) as snapshots`.execute(tx);
  const { machines = 0, volumes = 0, snapshots = 0 } = rows[0] ?? {};
  if (machines + volumes + snapshots === 0) return checkNoCopies(tx, hostId);
  throw new ServiceError(
    'conflict',
    `The host still has machines (${machines}), volumes (${volumes}) or snapshots (${snapshots}). Move or delete them first, or remove the host with force: then they are lost.`,
  );
}

/** Throws `conflict` while moves to the host are under way, or what moves have left there is still being deleted. */
async function checkNoCopies(tx: Tx, hostId: string): Promise<void> {
  const { rows } = await sql<{ copies: number }>`
    select count(*)::int as copies from operations
    where finished_at is null and ((kind = 'move' and args ->> 'to_host_id' = ${hostId})
      or (kind = 'remove_copy' and host_id = ${hostId}))`.execute(tx);
  const copies = rows[0]?.copies ?? 0;
  if (copies === 0) return;
  throw new ServiceError(
    'conflict',
    `The host still has copies of disks that move (${copies}). Retry in a moment, or remove the host with force.`,
    { retryAfterSec: 2 },
  );
}

async function giveUpAll(app: App, hostId: string): Promise<void> {
  const reason = `Its host ${await nameOfHost(app.db, hostId)} was removed from the service.`;
  const idsOf = async (table: 'machines' | 'volumes' | 'snapshots') => {
    const { rows } = await sql<{ id: string }>`
      select id from ${sql.table(table)} where host_id = ${hostId} and state <> 'destroyed' order by id`.execute(
      app.db,
    );
    return rows.map(({ id }) => id);
  };
  for (const id of await idsOf('machines')) await giveUpMachine(app, hostId, id, reason);
  for (const id of await idsOf('snapshots')) await giveUpSnapshot(app, hostId, id, reason);
  for (const id of await idsOf('volumes')) await giveUpVolume(app, hostId, id, reason);
}

/** The operations that succeed on a removed host, because nothing is left to delete. */
const DELETES = new Set(['destroy', 'delete_volume', 'delete_snapshot']);

/**
 * Ends the unfinished operations on an object of the host, then runs `giveUp`, and at last frees the idempotency keys of
 * these operations, because keys are locked after the account (db/transaction.ts). Does nothing when a move has taken the
 * object to another host since the ids were listed.
 */
async function endOperations(
  tx: Tx,
  { table, id, hostId }: { table: 'machines' | 'volumes' | 'snapshots'; id: string; hostId: string },
  reason: string,
  giveUp: () => Promise<void>,
): Promise<void> {
  const subject = { machines: { machineId: id }, volumes: { volumeId: id }, snapshots: { snapshotId: id } }[table];
  const unfinished = await lockUnfinished(tx, subject);
  const { rows } = await sql`select from ${sql.table(table)} where id = ${id} and host_id = ${hostId}`.execute(tx);
  if (rows.length === 0) return;
  const ended = unfinished.filter(({ kind }) => !DELETES.has(kind));
  for (const operation of ended) await cancelOperation(tx, operation, new ServiceError('host_unavailable', reason));
  await giveUp();
  for (const operation of ended) await freeKeyOf(tx, operation);
}

function giveUpMachine(app: App, hostId: string, id: string, reason: string): Promise<void> {
  return inTransaction(app.db, async (tx) => {
    const row = await lockMachine(tx, id);
    if (!row) return;
    await endOperations(tx, { table: 'machines', id, hostId }, reason, async () => {
      if (row.state === 'error' || row.state === 'destroyed') return;
      const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:operator' } as const;
      const to = { state: 'error', error: reason, generation: sql<number>`generation + 1` } as const;
      await transition(app, tx, scope, (steps) => steps.changeMachine(row, to));
    });
  });
}

function giveUpSnapshot(app: App, hostId: string, id: string, reason: string): Promise<void> {
  return inTransaction(app.db, (tx) =>
    endOperations(tx, { table: 'snapshots', id, hostId }, reason, async () => {
      const row = await lockSnapshot(tx, id);
      if (!row || row.state === 'error' || row.state === 'deleting') return;
      const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:operator' } as const;
      await transition(app, tx, scope, async (steps) => {
        // A snapshot that was being created was never shown.
        if (row.state === 'creating') await steps.removeSnapshot(row);
        else await steps.changeSnapshot(row, { state: 'error', error: reason });
      });
    }),
  );
}

function giveUpVolume(app: App, hostId: string, id: string, reason: string): Promise<void> {
  return inTransaction(app.db, (tx) =>
    endOperations(tx, { table: 'volumes', id, hostId }, reason, async () => {
      const row = await lockVolume(tx, id);
      if (!row || row.state === 'error' || row.state === 'deleting') return;
      const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:operator' } as const;
      await transition(app, tx, scope, async (steps) => {
        // A volume that was being created was never shown.
        if (row.state === 'creating') await steps.removeVolume(row);
        else if (row.state === 'taken')
          await steps.changeVolume(row, { state: 'error', error: reason, machine_id: null });
        else await steps.changeVolume(row, { state: 'error', error: reason });
      });
    }),
  );
}
