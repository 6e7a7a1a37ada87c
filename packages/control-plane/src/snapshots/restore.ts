// Restore: the root disk of a machine goes back to one of its snapshots. The wish is written on the machine's row with a
// new generation, then the host brings the disk there, then one transaction takes the wish back and tells the feed.
//
//   running, wish --host: ends it, disk back, boots--> running        refused: as it was
//      \--disk back, does not boot--> stopped
//   stopped, wish --host: disk back--> stopped
//
// A host that may have acted without an answer has perhaps gone back already, so that nothing but going on is right: the
// wish stays, and the reconciler, or the next operation of the machine, finishes it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { settleJobsOf } from '../execs/settle.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { type Claim, lockClaimed, withMachineClaim } from '../machines/claim.ts';
import { ensureOnHost } from '../machines/ensure.ts';
import { noticeEnd } from '../machines/observe.ts';
import { ClaimLost } from '../machines/refusals.ts';
import { finishStop } from '../machines/stop.ts';
import { loseRunningJobs } from '../machines/store.ts';
import { checkAction, checkNotLeaving } from '../machines/transition.ts';
import { findSnapshot } from './store.ts';

/**
 * Restores a snapshot of the account into its machine; a running machine reboots into it. Throws `not_found`, `conflict`,
 * what the host refused with (the machine is as it was, or stopped when it does not boot), or `host_unavailable`.
 */
export async function restoreSnapshot(app: App, accountId: string, id: string): Promise<MachineRow> {
  const snapshot = await findSnapshot(app, accountId, id);
  return withMachineClaim(app, snapshot.machine_id, async (claim) => {
    checkNotLeaving(claim.machine.desired);
    checkAction(claim.machine.state, 'restore');
    const machine = await noticeEnd(app, claim);
    checkAction(machine.state, 'restore');
    return finishRestore(app, { machine: await wantRestore(app, accountId, claim, snapshot.id), token: claim.token });
  });
}

/** Writes the wish down, unless the snapshot went or broke meanwhile; a delete of it waits for the lock. */
async function wantRestore(
  app: App,
  accountId: string,
  { machine, token }: Claim,
  snapshotId: string,
): Promise<MachineRow> {
  const wanted = await app.db.transaction().execute(async (tx) => {
    await lockClaimed(tx, machine.id, token);
    const usable = await tx
      .selectFrom('snapshots')
      .select('id')
      .where('id', '=', snapshotId)
      .where('change', 'is', null)
      .where('state', '=', 'ready')
      .forShare()
      .executeTakeFirst();
    if (!usable) return undefined;
    return tx
      .updateTable('machines')
      .set({ restoring_snapshot_id: snapshotId, generation: sql`generation + 1` })
      .where('id', '=', machine.id)
      .returningAll()
      .executeTakeFirstOrThrow();
  });
  if (wanted) return wanted;
  const { error } = await findSnapshot(app, accountId, snapshotId);
  throw new ServiceError('conflict', `The snapshot is in error: ${error ?? 'it is damaged.'}`);
}

/** Brings a claimed machine back to the snapshot that its row wishes for: the second half of a restore, also after a crash. */
export async function finishRestore(app: App, claim: Claim): Promise<MachineRow> {
  const { machine } = claim;
  const desired = machine.state === 'running' ? 'running' : 'stopped';
  const before = await listRunningJobs(app, machine.id);
  let report: MachineReport;
  try {
    report = await ensureOnHost(app, machine, desired);
  } catch (error) {
    await endRefused(app, claim, error);
    throw error;
  }
  const ended = before.length === 0 ? [] : await jobsThatEnded(app, machine, before);
  return recordRestored(app, claim, report, ended);
}

/** The jobs that a machine had before it went back; those that its host runs by now are of after it. */
async function jobsThatEnded(app: App, machine: MachineRow, before: readonly string[]): Promise<string[]> {
  await settleJobsOf(app, machine);
  const reports = await app.hosts.client(machine.host_id).listRunningJobs(machine.id);
  const running = new Set(reports?.map((report) => report.job_id));
  return before.filter((id) => !running.has(id));
}

async function listRunningJobs(app: App, machineId: string): Promise<string[]> {
  const rows = await app.db
    .selectFrom('execs')
    .select('id')
    .where('machine_id', '=', machineId)
    .where('status', '=', 'running')
    .execute();
  return rows.map((row) => row.id);
}

/** The claim is kept: whoever holds it gives it back. */
function recordRestored(
  app: App,
  { machine, token }: Claim,
  { isolation }: MachineReport,
  endedJobs: readonly string[],
): Promise<MachineRow> {
  const { id, account_id, state, restoring_snapshot_id } = machine;
  if (restoring_snapshot_id === null) throw new Error('a restore was finished that nobody wished for');
  return app.db.transaction().execute(async (tx) => {
    const row = await tx
      .updateTable('machines')
      .set({
        restoring_snapshot_id: null,
        ...(state === 'running' ? { isolation, started_at: sql<Date>`now()` } : {}),
      })
      .where('id', '=', id)
      .where('claim_token', '=', token)
      .returningAll()
      .executeTakeFirst();
    if (!row) throw new ClaimLost();
    const lost = await loseRunningJobs(tx, id, endedJobs);
    await writeActivity(tx, account_id, [
      ...lost,
      { action: 'snapshot.restored', actor: 'user', machineId: id, metadata: { snapshot_id: restoring_snapshot_id } },
    ]);
    return row;
  });
}

/**
 * After a host that did not do it: the wish is taken back, and a machine that does not run any more is stopped. One that
 * may have done it keeps the wish. What fails here is left to the reconciler.
 */
async function endRefused(app: App, claim: Claim, refusal: unknown): Promise<void> {
  if (refusal instanceof HostUnavailable && refusal.mayHaveActed) return app.reconcileSoon();
  try {
    const { machine, token } = claim;
    const mayHaveEnded = machine.state === 'running' && !(refusal instanceof HostUnavailable);
    const report = mayHaveEnded ? await app.hosts.client(machine.host_id).getMachine(machine.id) : undefined;
    const hasEnded = report?.status === 'stopped' || report?.status === 'failed';
    const row = await takeBack(app, claim, hasEnded);
    if (hasEnded) await finishStop(app, { machine: row, token });
  } catch (err) {
    if (err instanceof ClaimLost) throw err;
    app.log.warn({ err, machine_id: claim.machine.id }, 'a failed restore is left to the reconciler');
    app.reconcileSoon();
  }
}

/** Throws `ClaimLost`. */
async function takeBack(app: App, { machine, token }: Claim, hasEnded: boolean): Promise<MachineRow> {
  const row = await app.db
    .updateTable('machines')
    .set({
      restoring_snapshot_id: null,
      ...(hasEnded
        ? { desired: 'stopped' as const, desired_by: 'system:host' as const, generation: sql`generation + 1` }
        : {}),
    })
    .where('id', '=', machine.id)
    .where('claim_token', '=', token)
    .returningAll()
    .executeTakeFirst();
  if (!row) throw new ClaimLost();
  return row;
}
