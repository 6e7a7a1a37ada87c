// Expiry: a row of operations that is due when its machine expires, by the database's clock, and that becomes a stop or a
// destroy then. Several replicas may see it due: the claim decides which of them acts.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { beginDestroy, beginStop } from '../machines/actions.ts';
import { hasSnapshots, lockMachine } from '../machines/store.ts';
import { performClaimed } from './perform.ts';
import type { Begun } from './request.ts';
import { type Claimed, finishClaimed, lockUnfinished } from './store.ts';

const ACTOR = 'system:expiry';

/** How long an expiry waits for another operation of its machine before it looks again, ms. */
const BUSY_MS = 1_000;

/** Writes, in the transaction of the request, when a machine expires; null: never. Returns the time. */
export async function setExpiry(
  tx: Tx,
  machine: Pick<MachineRow, 'id' | 'account_id' | 'host_id'>,
  sec: number | null,
) {
  await tx.deleteFrom('operations').where('machine_id', '=', machine.id).where(sql<boolean>`kind = 'expire'`).execute();
  if (sec === null) return null;
  const { run_at } = await tx
    .insertInto('operations')
    .values({
      account_id: machine.account_id,
      host_id: machine.host_id,
      machine_id: machine.id,
      kind: 'expire',
      args: '{}',
      actor: ACTOR,
      run_at: sql<Date>`now() + ${sec} * interval '1 second'`,
    })
    .returning('run_at')
    .executeTakeFirstOrThrow();
  return run_at;
}

/** Performs an expiry that is due and claimed. It waits while another operation of the machine is under way. */
export async function performExpiry(app: App, claimed: Claimed): Promise<void> {
  const machineId = claimed.operation.machine_id;
  if (machineId === null) throw new Error(`The expiry ${claimed.operation.id} has no machine.`);
  const begun = await inTransaction(app.db, async (tx): Promise<Begun> => {
    const [machine, unfinished] = await Promise.all([lockMachine(tx, machineId), lockUnfinished(tx, { machineId })]);
    if (!machine || !(await isStillDue(tx, claimed))) return 'noop';
    if (unfinished.length > 0) {
      await lookAgainSoon(tx, claimed);
      return 'noop';
    }
    await finishClaimed(tx, claimed);
    return begin(app, tx, machine);
  });
  if (begun !== 'noop') await performClaimed(app, begun);
}

/** A machine with snapshots is stopped, whatever `on_expiry` says. A machine that does not run is stopped already. */
async function begin(app: App, tx: Tx, machine: MachineRow): Promise<Begun> {
  if (machine.state === 'destroyed') return 'noop';
  const mustStop = machine.on_expiry === 'stop' || (await hasSnapshots(tx, machine.id));
  if (!mustStop) return beginDestroy(app, tx, machine, ACTOR, {});
  return machine.state === 'running' ? beginStop(app, tx, machine, ACTOR) : 'noop';
}

/** A request may have moved or removed the expiry since it was claimed. */
async function isStillDue(tx: Tx, { operation, token }: Claimed): Promise<boolean> {
  const row = await tx
    .selectFrom('operations')
    .select('id')
    .where('id', '=', operation.id)
    .where('claim_token', '=', token)
    .where('finished_at', 'is', null)
    .where('run_at', '<=', sql<Date>`now()`)
    .executeTakeFirst();
  return row !== undefined;
}

/** Keeps the time of the expiry, which clients see, and the claim until it is looked at again. */
async function lookAgainSoon(tx: Tx, { operation }: Claimed): Promise<void> {
  await tx
    .updateTable('operations')
    .set({ claim_expires_at: sql<Date>`now() + ${BUSY_MS} * interval '1 millisecond'` })
    .where('id', '=', operation.id)
    .execute();
}
