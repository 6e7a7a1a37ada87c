// The spend guard stops the running machines of prepaid accounts without money. It also stops the machines of accounts
// that the operator has suspended or deleted. Several replicas may run it at once: the operation that stops a machine
// is inserted under the machine's lock, so there is only one.
import type { ActivityActor } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { AccountRow } from '../db/tables.ts';
import { beginStop } from '../machines/actions.ts';
import { createBackground } from '../reconcilers/background.ts';
import { performOwn } from '../reconcilers/own.ts';
import { isEmpty } from './check.ts';

/** How many machines of one host this replica stops at once. Stopping a guest that does not shut down takes 10 s. */
const WIDTH = 128;

export type Guard = {
  /** Finds the machines that must not run, and begins to stop them. Does not wait for their hosts. */
  pass(): Promise<void>;
  /** Waits until every stop that a pass began has ended. */
  settled(): Promise<void>;
};

/** A running machine of an account that may not run machines. `actor`: who stops it. */
export type Unpaid = { id: string; account_id: string; host_id: string; actor: ActivityActor };

export function createGuard(app: App): Guard {
  const stops = createBackground(app, 'spend guard', WIDTH);
  return {
    pass: async () => {
      for (const machine of await findUnpaid(app)) {
        stops.start(machine.host_id, machine.id, () => stopUnpaid(app, machine));
      }
    },
    settled: stops.settled,
  };
}

/**
 * Returns the machines that have to be stopped. Leaves out hosts that are not connected, and machines with an
 * unfinished operation; the next passes look at them again.
 */
export async function findUnpaid(app: App): Promise<Unpaid[]> {
  const isHalted = sql`(accounts.suspended_at is not null or accounts.deleted_at is not null)`;
  const { rows } = await sql<Unpaid>`
    select machines.id, machines.account_id, machines.host_id,
      case when ${isHalted} then 'system:operator' else 'system:spend_guard' end as actor
    from machines join accounts on accounts.id = machines.account_id
    where machines.state = 'running' and machines.host_id = any(${[...app.hosts.reachableIds()]}::uuid[])
      and (${isHalted} or (accounts.billing_mode = 'prepaid' and accounts.balance_micros <= 0))
      and not exists (select from operations
        where operations.machine_id = machines.id and operations.kind <> 'expire' and operations.finished_at is null)
    order by machines.id`.execute(app.db);
  return rows;
}

/**
 * Stops a machine if it still runs and its account still may not run machines. Waits until the first attempt at the
 * stop has ended. Throws when the database does not answer.
 */
export async function stopUnpaid(app: App, { id, account_id, actor }: Unpaid): Promise<void> {
  const hasBegun = await performOwn(app, {
    subject: { machineId: id },
    begin: async (tx, machine) => (machine?.state === 'running' ? beginStop(app, tx, machine, actor) : 'noop'),
    isStillDue: async (tx) => stopperOf(await lockAccount(tx, account_id)) === actor,
  });
  if (hasBegun)
    app.log.info(
      { machine_id: id, account_id, actor },
      'the stop of a machine began, because its account may not run machines',
    );
}

/** Who stops the machines of the account; undefined when they may run. */
function stopperOf(account: AccountRow): ActivityActor | undefined {
  if (account.suspended_at !== null || account.deleted_at !== null) return 'system:operator';
  return isEmpty(account) ? 'system:spend_guard' : undefined;
}
