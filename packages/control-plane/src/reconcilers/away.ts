// Ends what ran on a host that went away. After the lease of a host (SANDBAR_HOST_LEASE_SEC) nobody knows whether its
// machines still run, so they become `error`: they leave the quota, their meters end, and their jobs are lost. If the
// host comes back, the comparison with the rows stops their VMs, because a machine in `error` must not run.
//
// A wrong clock, a paused replica or a database that was down must not end machines. So three things must hold: this
// replica failed to reach the host for the whole time, by its own clock; it holds the host's lease without a gap, by
// the database's clock; and no replica has reached the host for the whole time.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { Tx } from '../db/database.ts';
import type { OperationRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { nameOfHost } from '../hosts/store.ts';
import { freeKeyOf } from '../idempotency/keys.ts';
import { lockMachine } from '../machines/store.ts';
import { cancelOperation } from '../operations/cancel.ts';
import { lockUnfinished } from '../operations/store.ts';
import { transition } from '../transitions/transition.ts';
import { attempt } from './attempt.ts';
import { createBackground } from './background.ts';

const WIDTH = 4;

export type AwayWatch = {
  /** Finds the hosts that were away for too long, and begins to end their machines. Does not wait for the end. */
  pass(): Promise<void>;
  /** Waits until everything that a pass began has ended. */
  settled(): Promise<void>;
};

export function createAwayWatch(app: App): AwayWatch {
  const work = createBackground(app, 'hosts that are away', 1);
  const leaseMs = app.config.hostLeaseSec * 1_000;
  return {
    pass: async () => {
      for (const [hostId, since] of app.presence.failing()) {
        if (performance.now() - since < leaseMs) continue;
        work.start(hostId, hostId, () => endMachinesOf(app, hostId));
      }
    },
    settled: work.settled,
  };
}

async function endMachinesOf(app: App, hostId: string): Promise<void> {
  const machines = await app.db
    .selectFrom('machines')
    .select('id')
    .where('host_id', '=', hostId)
    .where('state', 'in', ['running', 'provisioning'])
    .execute();
  if (machines.length === 0) return;
  const name = await nameOfHost(app.db, hostId);
  const reason = `Its host ${name} went away: nobody could reach it for ${app.config.hostLeaseSec} seconds.`;
  app.log.warn({ host_id: hostId, machines: machines.length }, 'the machines of a host that is away are ended');
  const isStillAway = (tx: Tx) => checkAway(app, tx, hostId);
  await forEachBounded(machines, WIDTH, ({ id }) =>
    attempt(app, { machine_id: id }, () => endWithHost(app, id, reason, isStillAway)),
  );
}

/** Thrown to roll the transaction back when the reason for the change no longer holds. */
class CalledOff extends Error {}

/**
 * Sets a machine that runs, or is about to run, to `error` without asking its host. Does nothing if it is in another
 * state. `isStillDue` is called after the change and keeps its condition true until the commit. Returns true if the row
 * changed.
 *
 * An unfinished start or create ends here. Any other unfinished operation stays due, and is continued when its host is
 * back: it has a volume or a snapshot in a state that only the operation can end.
 */
export async function endWithHost(
  app: App,
  id: string,
  reason: string,
  isStillDue: (tx: Tx) => Promise<boolean>,
): Promise<boolean> {
  try {
    return await inTransaction(app.db, async (tx) => {
      const [row, unfinished] = await Promise.all([lockMachine(tx, id), lockUnfinished(tx, { machineId: id })]);
      if (!row || (row.state !== 'running' && row.state !== 'provisioning')) return false;
      const ending = unfinished.filter(endsHere);
      for (const operation of ending)
        await cancelOperation(tx, operation, new ServiceError('host_unavailable', reason));
      const scope = { accountId: row.account_id, hostId: row.host_id, actor: 'system:host' } as const;
      // A late call of an earlier generation cannot start the machine again.
      const to = { state: 'error', error: reason, generation: sql<number>`generation + 1` } as const;
      await transition(app, tx, scope, (steps) => steps.changeMachine(row, to));
      if (!(await isStillDue(tx))) throw new CalledOff();
      // Last, because keys are locked after the account and the host (db/transaction.ts).
      for (const operation of ending) await freeKeyOf(tx, operation);
      return true;
    });
  } catch (error) {
    if (error instanceof CalledOff) return false;
    throw error;
  }
}

/** The undo of a create stays: it removes the machine, which no client has seen, when the host is back. */
const endsHere = ({ kind, undoing }: OperationRow): boolean => kind === 'start' || (kind === 'create' && !undoing);

/** Returns true if this replica holds the host's lease and nobody has reached the host for the whole time. */
async function checkAway(app: App, tx: Tx, hostId: string): Promise<boolean> {
  const { rows } = await sql`
    select from hosts
    where id = ${hostId} and listener_id = ${app.replicaId} and listener_until > clock_timestamp()
      and seen_at < now() - ${app.config.hostLeaseSec}::int * interval '1 second'
    for no key update`.execute(tx);
  return rows.length === 1;
}
