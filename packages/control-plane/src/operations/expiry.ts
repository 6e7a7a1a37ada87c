// The expiry of a machine is a row in `operations` whose `run_at` is the time of the expiry, by the database's clock.
// When it is due, it is replaced by a stop or a destroy operation. Several replicas may see the same expiry; only the
// one that claims the row acts on it.
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

/** When another operation on the machine is unfinished, the expiry is tried again after this time, in milliseconds. */
const BUSY_MS = 1_000;

/**
 * Sets when a machine expires, in the transaction of the request. `sec`: seconds from now; null removes the expiry.
 * Returns the time of the expiry, or null.
 */
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

/**
 * Acts on an expiry that is due and claimed: stops or destroys the machine. While another operation on the machine is
 * unfinished, it only schedules another try.
 */
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

/**
 * Begins the stop or the destroy of an expired machine. A machine with snapshots is always stopped and never destroyed,
 * whatever `on_expiry` says. Returns `noop` when there is nothing to stop.
 */
async function begin(app: App, tx: Tx, machine: MachineRow): Promise<Begun> {
  if (machine.state === 'destroyed') return 'noop';
  const mustStop = machine.on_expiry === 'stop' || (await hasSnapshots(tx, machine.id));
  if (!mustStop) return beginDestroy(app, tx, machine, ACTOR, {});
  return machine.state === 'running' ? beginStop(app, tx, machine, ACTOR) : 'noop';
}

/** Returns false when a request has changed or removed the expiry since this process claimed it. */
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

/**
 * Schedules another try in `BUSY_MS` by shortening the claim. `run_at` must not change, because clients see it as the
 * time of the expiry.
 */
async function lookAgainSoon(tx: Tx, { operation }: Claimed): Promise<void> {
  await tx
    .updateTable('operations')
    .set({ claim_expires_at: sql<Date>`now() + ${BUSY_MS} * interval '1 millisecond'` })
    .where('id', '=', operation.id)
    .execute();
}
