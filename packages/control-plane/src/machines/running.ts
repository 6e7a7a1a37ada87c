// Finds the machine for something that needs it to run: a job, a guest call or a guest stream. All wait in the same way
// for a machine that is on its way to running.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { jsonObjectFrom } from 'kysely/helpers/postgres';
import type { App } from '../app.ts';
import { statement } from '../db/statement.ts';
import type { MachineRow, OperationRow } from '../db/tables.ts';
import { machineIsLeaving } from '../operations/refusals.ts';
import { isNoExpiry } from '../operations/store.ts';
import { waitForOperation } from '../operations/wait.ts';
import { machineNotFound } from './refusals.ts';
import { unfinishedOf } from './store.ts';

export type Unfinished = Pick<OperationRow, 'id' | 'kind' | 'undoing'>;

/** Kinds of operations during which the machine keeps running. */
const RUNS_BESIDE: ReadonlySet<OperationRow['kind']> = new Set(['snapshot', 'attach', 'detach']);

/** Returns true while a failed create is being undone. Clients must not see that machine. */
export const isHidden = (operation: Pick<OperationRow, 'kind' | 'undoing'> | undefined | null): boolean =>
  operation?.kind === 'create' && operation.undoing;

/**
 * Returns the id of the unfinished operation that must end before the machine runs, or undefined if the machine runs
 * now. `refuse` returns the error for a machine in a state that does not run. Throws that error, and `conflict` when
 * the operation does not end with a running machine.
 */
export function operationBeforeRunning(
  { state }: Pick<MachineRow, 'state'>,
  operation: Unfinished | undefined | null,
  refuse: (state: MachineRow['state']) => ServiceError,
): string | undefined {
  if (operation && !RUNS_BESIDE.has(operation.kind)) {
    const { id, kind, undoing } = operation;
    if (kind === 'destroy') throw machineIsLeaving();
    const leadsToRunning = kind === 'create' || (kind === 'start' && !undoing);
    if (leadsToRunning || (kind === 'restore' && state === 'running')) return id;
    if (state !== 'running') throw refuse(state);
    throw new ServiceError('conflict', `The machine has a ${kind} under way.`);
  }
  if (state !== 'running') throw refuse(state);
  return undefined;
}

export type RunningMachine = Pick<MachineRow, 'id' | 'host_id'>;

/**
 * Returns a running machine of the account. With `waits`, waits up to 30 s for a machine that is on its way to running.
 * Throws `not_found` for an absent or foreign machine, `conflict` for a machine that does not run, and the errors of
 * {@link waitForOperation}.
 */
export async function findRunningMachine(
  app: App,
  accountId: string,
  machineId: string,
  waits: boolean,
): Promise<RunningMachine> {
  const deadline = performance.now() + app.config.timing.runningWaitMs;
  for (;;) {
    const [machine] = await selectMachine(app.db, accountId, machineId);
    if (!machine || isHidden(machine.operation)) throw machineNotFound();
    const before = operationBeforeRunning(machine, machine.operation, notRunning);
    if (before === undefined) return machine;
    if (!waits) throw notRunning(machine.state);
    await waitForOperation(app, before, deadline);
  }
}

const notRunning = (state: MachineRow['state']): ServiceError =>
  new ServiceError(
    'conflict',
    state === 'running' ? 'The machine is being restored.' : `The machine is ${state}; it must run for this.`,
  );

const selectMachine = statement((db, accountId: string, id: string) =>
  db
    .selectFrom('machines')
    .select(['id', 'host_id', 'state'])
    .select((machine) =>
      jsonObjectFrom(unfinishedOf(machine).where(isNoExpiry).select(['id', 'kind', 'undoing'])).as('operation'),
    )
    .where('id', '=', id)
    .where('account_id', '=', accountId),
);
