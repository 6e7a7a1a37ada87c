// Makes one attempt at an operation that this process has claimed. The request that created the operation makes the
// first attempt. The reconciler makes all later attempts.
//
//   run --succeeds--> result recorded, operation finished
//    \--fails, and the error is no refusal--> due again after a pause
//    \--fails, and the error is a refusal--> undoing
//
//   undoing --succeeds--> undo recorded, operation finished with the refusal
//        \--fails--> due again after a pause, still undoing
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { isDatabaseFailure } from '../db/failures.ts';
import type { MachineRow, OperationRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { freeKeyOf } from '../idempotency/keys.ts';
import { getMachineRow, lockMachine } from '../machines/store.ts';
import { transition } from '../transitions/transition.ts';
import type { Act, Definition, Work } from './definition.ts';
import { OPERATIONS } from './kinds.ts';
import { ClaimLost } from './refusals.ts';
import { type Claimed, finishClaimed, holdClaim, postponeClaimed, toRefusal, updateClaimed } from './store.ts';

/**
 * Makes one attempt at a claimed operation. `machine` is the machine's row if the caller has just read it; otherwise
 * this function reads it. Returns the machine's new row if this kind of operation returns one.
 *
 * Throws the refusal when the operation was undone. Throws the error of the attempt when it failed in another way; the
 * operation is then due again later. Throws `ClaimLost` when another process has claimed the operation.
 */
export async function performClaimed(
  app: App,
  claimed: Claimed,
  machine?: MachineRow,
): Promise<MachineRow | undefined> {
  const { operation } = claimed;
  const attributes = {
    'sandbar.operation_id': operation.id,
    'sandbar.operation_attempt': operation.attempts,
    'sandbar.account_id': operation.account_id,
    'sandbar.host_id': operation.host_id,
    'sandbar.machine_id': operation.machine_id ?? undefined,
  };
  return app.tracing.trace(`operation.${operation.kind}`, { attributes }, () =>
    holdClaim(app, claimed, () => attemptClaimed(app, claimed, machine)),
  );
}

async function attemptClaimed(app: App, claimed: Claimed, machine?: MachineRow): Promise<MachineRow | undefined> {
  const { operation } = claimed;
  if (operation.attempts === 1) app.metrics.operationsStarted.inc({ kind: operation.kind });
  const row = machine ?? (await readMachine(app, claimed));
  const work: Work = { claimed, operation, machine: row };
  if (operation.kind === 'expire') throw new Error('An expiry is performed as the operation that it becomes.');
  const definition = OPERATIONS[operation.kind];
  if (mustUndo(operation, definition)) return undo(app, definition, work, refusalOf(operation));
  let outcome: unknown;
  try {
    outcome = await definition.act.run(app, work);
  } catch (error) {
    if (definition.undo && mayUndo(definition, error, work))
      return undo(app, definition, { ...work, cause: error }, toRefusal(error));
    return postpone(app, claimed, error);
  }
  return record(app, work, definition.act, outcome).catch((error: unknown) => postpone(app, claimed, error));
}

async function readMachine(app: App, claimed: Claimed): Promise<MachineRow | undefined> {
  const { operation } = claimed;
  if (operation.machine_id === null) return undefined;
  return getMachineRow(app.db, operation.machine_id).catch((error: unknown) =>
    // While an operation is being undone, its row keeps the refusal, for those who wait.
    postpone(app, claimed, error, operation.undoing ? refusalOf(operation) : error),
  );
}

const mustUndo = ({ undoing, attempts }: OperationRow, { afterCrash }: Definition): boolean =>
  undoing || (attempts > 1 && afterCrash === 'undo');

const mayUndo = ({ isRefusal = () => true }: Definition, error: unknown, work: Work): boolean =>
  !(error instanceof ClaimLost) && !isDatabaseFailure(error) && isRefusal(error, work);

/**
 * Undoes the operation and then throws `refusal`, the reason for the undo. Throws another error when the decision could
 * not be recorded. Then nobody may be told of the refusal, because the next attempt may succeed.
 */
async function undo(app: App, definition: Definition, work: Work, refusal: ServiceError): Promise<never> {
  const { claimed } = work;
  let { operation } = work;
  const undoing = definition.undo;
  if (!undoing) throw new Error(`The ${work.operation.kind} operation cannot be undone.`);
  if (!operation.undoing) {
    const columns = { undoing: true, last_error: refusal.message, error_code: refusal.code };
    operation = await updateClaimed(app.db, claimed, columns).catch((error: unknown) => postpone(app, claimed, error));
  }
  try {
    const outcome = await undoing.run(app, { ...work, operation });
    await record(app, { ...work, operation }, undoing, outcome, refusal);
  } catch (error) {
    // The client gets the refusal. That the undo failed and is repeated goes to the log only.
    await postpone(app, claimed, error, refusal).catch((failure: unknown) => {
      if (failure instanceof ClaimLost) throw failure;
    });
  }
  throw refusal;
}

/**
 * Finishes an operation and records its result in one transaction. `refusal` is set when the operation was undone; then
 * the idempotency key of its request is freed. Returns the machine's new row if this kind of operation returns one.
 * Throws `ClaimLost`.
 */
async function record(
  app: App,
  work: Work,
  { done }: Act<unknown>,
  outcome: unknown,
  refusal?: ServiceError,
): Promise<MachineRow | undefined> {
  const { claimed, operation } = work;
  const recorded = await app.tracing.span('operation.record', {}, () =>
    inTransaction(app.db, async (tx) => {
      const [machine] = await Promise.all([
        operation.machine_id === null ? undefined : lockMachine(tx, operation.machine_id),
        finishClaimed(tx, claimed, refusal),
      ]);
      const scope = { accountId: operation.account_id, hostId: operation.host_id, actor: operation.actor };
      const recorded = await transition(app, tx, scope, async (steps) => {
        const row = await done({ app, tx, steps, operation, machine }, outcome);
        return row ?? undefined;
      });
      if (refusal) await freeKeyOf(tx, operation);
      return recorded;
    }),
  );
  app.metrics.operationsFinished.inc({ kind: operation.kind, outcome: refusal ? 'refused' : 'done' });
  return recorded;
}

/**
 * Schedules the next attempt for the reconciler, and throws `error`. `told` is the error that clients see as the reason
 * for the failure.
 */
async function postpone(app: App, claimed: Claimed, error: unknown, told = error): Promise<never> {
  if (error instanceof ClaimLost) throw error;
  const { id, kind, machine_id } = claimed.operation;
  app.metrics.failedAttempts.inc({ kind });
  await postponeClaimed(app, claimed, told).catch((err: unknown) => {
    if (err instanceof ClaimLost) throw err;
    // Nothing else to do: the claim expires by itself, and then the reconciler takes the operation.
    app.log.debug({ err, operation_id: id }, 'a failed operation could not be given back');
  });
  app.log.warn({ err: error, operation_id: id, kind, machine_id }, 'an operation failed and is attempted again later');
  throw error;
}

/** Returns the refusal that made an earlier attempt start the undo. */
const refusalOf = ({ error_code, last_error, kind }: OperationRow): ServiceError =>
  new ServiceError(error_code ?? 'internal_error', last_error ?? `The ${kind} was interrupted, and is taken back.`);
