// The undo of a snapshot that nobody will finish: it is made under its machine's claim, so whoever holds that claim knows
// that its maker is gone.
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { type Claim, claimIsFree, holdClaim, tryClaim } from '../machines/claim.ts';
import { isLeaving } from '../machines/transition.ts';
import { attempt } from '../reconcilers/attempt.ts';

const WIDTH = 8;

/**
 * Removes its row, then what the host has of it: that order, since the statement that made it ready may have been done
 * although its answer was lost, and then it stays. What the host keeps is of no row, and the reconciler removes it.
 * Returns whether there was something to undo; throws what the host refused with.
 */
export async function undoSnapshot(app: App, { machine }: Claim, id: string): Promise<boolean> {
  const { numDeletedRows } = await app.db
    .deleteFrom('snapshots')
    .where('id', '=', id)
    .where('change', '=', 'creating')
    .executeTakeFirst();
  if (numDeletedRows === 0n) return false;
  await app.hosts.client(machine.host_id).deleteSnapshot(id);
  return true;
}

/** Undoes, on every host that answers, the snapshots whose makers died. */
export async function undoOrphanedSnapshots(app: App): Promise<void> {
  const connected = app.hosts.connectedIds();
  if (connected.length === 0) return;
  const rows = await app.db
    .selectFrom('snapshots')
    .innerJoin('machines', 'machines.id', 'snapshots.machine_id')
    .select('machines.id')
    .distinct()
    .where('snapshots.change', '=', 'creating')
    .where('snapshots.host_id', 'in', connected)
    .where(claimIsFree)
    .execute();
  await forEachBounded(rows, WIDTH, ({ id }) => attempt(app, { machine_id: id }, () => undoOrphansOf(app, id)));
}

/** Undoes what nobody makes any more of one machine; its deletion, when that is under way, takes them along. */
export async function undoOrphansOf(app: App, machineId: string): Promise<void> {
  const claim = await tryClaim(app, machineId);
  if (!claim) return;
  await holdClaim(app, claim, async () => {
    if (isLeaving(claim.machine.desired) && claim.machine.state !== 'destroyed') return;
    const orphans = await app.db
      .selectFrom('snapshots')
      .select('id')
      .where('machine_id', '=', machineId)
      .where('change', '=', 'creating')
      .execute();
    for (const { id } of orphans) {
      await undoSnapshot(app, claim, id);
      app.log.info({ snapshot_id: id, machine_id: machineId }, 'the reconciler undid a snapshot that nobody finished');
    }
  });
}
