// SQL of machines. Every change of state goes through `changeState`: one transaction that also ends the jobs,
// sets volumes free, settles the quota, writes the feed and moves the memory reservation, so that they can never disagree.
import type { ActivityActor, NewActivity } from '@sandbar/contract/activity.ts';
import type { MachineState } from '@sandbar/contract/machine.ts';
import { sql, type UpdateObject } from 'kysely';
import { activityOf, activityOfJob } from '../activity/entries.ts';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';
import type { Database, Desired, MachineRow } from '../db/tables.ts';
import { releaseMemory, reserveMemory } from '../hosts/store.ts';
import { chargeUnchecked, releaseQuota } from '../quotas/charge.ts';
import { isCounted, machineAmounts } from '../quotas/machine-amounts.ts';
import { freeVolumes, insertKeptDisk } from '../volumes/store.ts';
import { type Claim, claimIsFree, lockClaimed } from './claim.ts';
import { MACHINE_COLUMNS } from './columns.ts';
import { freeKey } from './idempotency.ts';
import { holdsMemory } from './memory-holders.ts';
import { ClaimLost, fleetIsFull, machineNotFound } from './refusals.ts';
import { forgetRootVolume, hasRootVolumeToReturn, returnRootVolume } from './root-volume.ts';
import { LEAVING } from './transition.ts';

/** Who may change the row: the holder of the claim, or an observation of this generation while nobody holds one. */
export type Guard = { token: string } | { observedGeneration: number; from: readonly MachineState[] };

export type Change = {
  to: MachineState;
  desired?: Desired;
  /** A change of mind: from now on the host ignores what older calls ask for. */
  bumpGeneration?: boolean;
  error?: string | null;
  isolation?: MachineRow['isolation'];
  /** Keep the claim after the change, for an operation of several steps. */
  keepClaim?: boolean;
  /** GiB of the root volume that it gives back, when that is known. */
  returnedSizeGb?: number | undefined;
  /** Who did it, for the feed; default: who wanted it. */
  actor?: ActivityActor;
};

/**
 * Moves a machine to another state. Returns the new row, or undefined when an observation came too late.
 * Throws `ClaimLost` when the claim is another's by now, `fleet_capacity` when memory is needed and there is none.
 */
export async function changeState(app: App, id: string, guard: Guard, change: Change): Promise<MachineRow | undefined> {
  return app.db.transaction().execute(async (tx) => {
    const old = await lockForChange(tx, id, guard);
    if (!old) return undefined;
    const row = await tx
      .updateTable('machines')
      .set(changedColumns(old, change))
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    const ended = change.to === 'running' ? [] : await loseRunningJobs(tx, id);
    const actor = change.actor ?? old.desired_by;
    const detached = row.state === 'destroyed' ? await freeVolumes(tx, id, actor) : [];
    // Locks in the order of quotas/charge.ts.
    await settleQuota(tx, old, row, change.returnedSizeGb);
    await writeActivity(tx, row.account_id, [...ended, ...detached, ...activityOf(old, row, actor)]);
    await moveReservation(app, tx, old, row);
    if (row.state === 'destroyed' && old.started_at === null) await freeKey(tx, id);
    return row;
  });
}

/** What a change of state frees; the disk that is kept goes on counting as a volume's. */
async function settleQuota(tx: Tx, old: MachineRow, row: MachineRow, returnedSizeGb?: number): Promise<void> {
  if (row.state === 'destroyed' && old.state !== 'destroyed') await settleDisk(tx, old, returnedSizeGb);
  if (row.state === 'running' && hasRootVolumeToReturn(old)) await forgetRootVolume(tx, old);
  if (isCounted(old.state) && !isCounted(row.state)) await releaseQuota(tx, row.account_id, machineAmounts(row));
}

/** The root volume of a machine that never ran is a volume again; else the disk becomes one when it is kept. */
async function settleDisk(tx: Tx, machine: MachineRow, returnedSizeGb: number | undefined): Promise<void> {
  if ((await returnRootVolume(tx, machine, returnedSizeGb)) || machine.keep_volume_id === null) return;
  await insertKeptDisk(tx, machine, machine.keep_volume_id);
  await chargeUnchecked(tx, machine.account_id, { storage_gb: machine.rootfs_size_gb });
}

async function moveReservation(app: App, tx: Tx, old: MachineRow, row: MachineRow): Promise<void> {
  if (holdsMemory(row.state) && !holdsMemory(old.state)) {
    const reserved = await reserveMemory(tx, row.host_id, row.memory_mb, app.config.memoryOvercommit);
    if (!reserved) throw fleetIsFull(row.memory_mb);
  }
  if (!holdsMemory(row.state) && holdsMemory(old.state)) await releaseMemory(tx, row.host_id, row.memory_mb);
}

async function lockForChange(tx: Tx, id: string, guard: Guard): Promise<MachineRow | undefined> {
  if ('token' in guard) return lockClaimed(tx, id, guard.token);
  const query = tx.selectFrom('machines').selectAll().where('id', '=', id).forNoKeyUpdate();
  return (
    query
      .where('state', 'in', [...guard.from])
      .where('generation', '<=', guard.observedGeneration)
      .where('desired', 'not in', LEAVING)
      // Its host may be in the middle of it.
      .where('restoring_snapshot_id', 'is', null)
      .where(claimIsFree)
      .executeTakeFirst()
  );
}

function changedColumns(old: MachineRow, change: Change): UpdateObject<Database, 'machines'> {
  const entered = change.to !== old.state;
  const now = sql<Date>`now()`;
  return {
    state: change.to,
    ...(change.desired === undefined ? {} : { desired: change.desired, desired_by: change.actor ?? old.desired_by }),
    ...(change.bumpGeneration ? { generation: old.generation + 1 } : {}),
    ...(change.error === undefined ? {} : { error: change.error }),
    ...(change.isolation === undefined ? {} : { isolation: change.isolation }),
    ...(change.keepClaim ? {} : { claim_token: null, claim_expires_at: null }),
    ...(entered && change.to === 'running' ? { started_at: now } : {}),
    ...(entered && (change.to === 'stopped' || change.to === 'error') && old.state === 'running'
      ? { stopped_at: now }
      : {}),
    ...(entered && change.to === 'destroyed' ? { destroyed_at: now } : {}),
    // Nothing brings its disk anywhere any more.
    ...(change.to === 'error' || change.to === 'destroyed' ? { restoring_snapshot_id: null } : {}),
  };
}

/** Records what should become of a claimed machine, as a new generation. Throws `ClaimLost`. */
export async function setDesired(
  app: App,
  id: string,
  token: string,
  desired: Desired,
  actor: ActivityActor = 'user',
): Promise<MachineRow> {
  const row = await app.db
    .updateTable('machines')
    .set({ desired, desired_by: actor, generation: sql`generation + 1` })
    .where('id', '=', id)
    .where('claim_token', '=', token)
    .returningAll()
    .executeTakeFirst();
  if (!row) throw new ClaimLost();
  return row;
}

/** Forgets a discarded machine, gives its memory back, and the root volume, now of `returnedSizeGb`. Throws `ClaimLost`. */
export async function deleteRow(app: App, { machine: { id }, token }: Claim, returnedSizeGb?: number): Promise<void> {
  await app.db.transaction().execute(async (tx) => {
    const row = await tx
      .selectFrom('machines')
      .selectAll()
      .where('id', '=', id)
      .where('claim_token', '=', token)
      .where('desired', '=', 'discarded')
      .forUpdate()
      .executeTakeFirst();
    if (!row) throw new ClaimLost();
    await returnRootVolume(tx, row, returnedSizeGb);
    if (isCounted(row.state)) await releaseQuota(tx, row.account_id, machineAmounts(row));
    if (holdsMemory(row.state)) await releaseMemory(tx, row.host_id, row.memory_mb);
    // Last, since its idempotency key goes with it.
    await tx.deleteFrom('machines').where('id', '=', id).execute();
  });
}

/**
 * Ends the jobs of a machine that does not run any more, or those of `ids` that another boot of it had; returns their
 * entries for the feed.
 */
export async function loseRunningJobs(tx: Tx, machineId: string, ids?: readonly string[]): Promise<NewActivity[]> {
  let update = tx
    .updateTable('execs')
    .set({ status: 'lost', finished_at: sql<Date>`now()` })
    .where('machine_id', '=', machineId)
    .where('status', '=', 'running');
  if (ids) update = update.where((is) => is('id', '=', is.fn.any(is.val([...ids]))));
  const lost = await update.returningAll().execute();
  return lost.map(activityOfJob);
}

const selectMachine = prepare<MachineRow>(
  'find_machine',
  `select ${MACHINE_COLUMNS} from machines where id = $1 and account_id = $2 and desired <> 'discarded'`,
);

/** The machine as its owner sees it: an id of another account, or of a create being undone, is absent. */
export async function findMachine(app: App, accountId: string, id: string): Promise<MachineRow> {
  const [row] = await selectMachine(app.db, [id, accountId]);
  if (!row) throw machineNotFound();
  return row;
}
