// Turns a request into an operation. The request joins an unfinished operation that does the same, waits for a
// different one to end, or inserts its own operation and performs it.
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { checkMayRun } from '../billing/check.ts';
import type { Tx } from '../db/database.ts';
import { isUniqueViolation } from '../db/failures.ts';
import type { MachineRow, OperationRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { freeKeyOf } from '../idempotency/keys.ts';
import { lockMachine } from '../machines/store.ts';
import { cancelOperation } from './cancel.ts';
import { performClaimed } from './perform.ts';
import { ClaimLost, machineIsLeaving, machineWasDeleted, volumeIsTaken } from './refusals.ts';
import { type Asked, relate } from './relate.ts';
import { type Claimed, lockUnfinished } from './store.ts';
import { joinOperation, waitForOperation } from './wait.ts';

/**
 * Either the new operation, which this process has claimed, or `noop` when the machine, volume or snapshot is already
 * as requested.
 */
export type Begun = Claimed | 'noop';

export type OperationRequest = Asked & {
  /**
   * Checks the locked rows, then inserts the operation and makes the changes that belong to its beginning. `machine` is
   * the locked row of the requested machine, or undefined if there is none. Throws when the request must be refused.
   */
  begin: (tx: Tx, machine: MachineRow | undefined) => Promise<Begun>;
  /**
   * Returns true when an earlier request with the same idempotency key has begun this operation or an equal one. Then
   * the request begins nothing. It is called while the machine's row is locked, and before the request waits for other
   * operations.
   */
  hasBegun?: (tx: Tx) => Promise<boolean>;
  /** How long the request waits for other operations, in milliseconds. The default is `operationWaitMs`. */
  waitMs?: number;
};

type Step =
  | { kind: 'begun'; claimed: Claimed }
  | { kind: 'join'; id: string }
  | { kind: 'wait'; id: string }
  | { kind: 'noop' };

/**
 * Performs an operation for a request, or joins an unfinished operation that does the same, and waits for its end.
 * Throws the refusals of `begin` and of the operation. Throws `conflict` if another operation does not end in time (60
 * s by default). Throws `host_unavailable` if the host does not answer; then a retry of the request joins the
 * unfinished operation. Returns false when there was nothing to do.
 */
export async function requestOperation(app: App, request: OperationRequest): Promise<boolean> {
  const deadline = performance.now() + (request.waitMs ?? app.config.timing.operationWaitMs);
  for (;;) {
    const step = await decideOnce(app, request);
    if (step === undefined) continue;
    if (step.kind === 'noop') return false;
    if (step.kind === 'wait') {
      await waitForOperation(app, step.id, deadline);
      continue;
    }
    if (step.kind === 'join') await joinOperation(app, step.id, deadline);
    else await performForRequest(app, step.claimed, undefined, deadline);
    return true;
  }
}

const ONE_AT_A_TIME = ['operations_machine', 'operations_volume', 'operations_snapshot'];

/**
 * Returns true if an operation could not be inserted because another one on the same machine, volume or snapshot was
 * inserted at the same moment.
 */
export const isOvertaken = (error: unknown): boolean => ONE_AT_A_TIME.some((index) => isUniqueViolation(error, index));

/**
 * Returns undefined when another request began an operation on the same machine, volume or snapshot at the same moment.
 * The caller then has to decide again.
 */
async function decideOnce(app: App, request: OperationRequest): Promise<Step | undefined> {
  try {
    return await inTransaction(app.db, (tx) => decide(tx, request));
  } catch (error) {
    if (!isOvertaken(error)) throw error;
    return undefined;
  }
}

/**
 * Performs an operation that the caller has inserted and claimed. When another process takes the operation over, waits
 * for it and returns undefined. Otherwise returns the machine's new row if this kind of operation returns one.
 * `deadline`: when to stop waiting, in milliseconds of `performance.now()`. Throws the refusal or the error of the
 * operation.
 */
export async function performForRequest(
  app: App,
  claimed: Claimed,
  machine: MachineRow | undefined,
  deadline: number,
): Promise<MachineRow | undefined> {
  try {
    return await performClaimed(app, claimed, machine);
  } catch (error) {
    if (!(error instanceof ClaimLost)) throw error;
    await joinOperation(app, claimed.operation.id, deadline);
    return undefined;
  }
}

/**
 * The operations that leave a machine running. The spend guard cannot stop a machine while an operation on it is
 * unfinished. So none of these begins any more when the machine is about to be stopped, or requests for them that follow
 * each other would keep it running without money.
 */
const LEAVES_RUNNING: readonly OperationRow['kind'][] = ['snapshot', 'restore', 'attach', 'detach'];

async function decide(tx: Tx, request: OperationRequest): Promise<Step> {
  const { machine_id: machineId, volume_id: volumeId, snapshot_id: snapshotId } = request;
  const subject = {
    ...(machineId === null ? {} : { machineId }),
    ...(volumeId === null ? {} : { volumeId }),
    ...(snapshotId === null ? {} : { snapshotId }),
  };
  const [machine, unfinished] = await Promise.all([
    machineId === null ? undefined : lockMachine(tx, machineId),
    lockUnfinished(tx, subject),
  ]);
  if (await request.hasBegun?.(tx)) return { kind: 'noop' };
  const cancelled: OperationRow[] = [];
  for (const underWay of unfinished) {
    const relation = relate(underWay, request);
    if (relation === 'join' || relation === 'wait') return { kind: relation, id: underWay.id };
    if (relation === 'refuse') throw machineIsLeaving();
    if (relation === 'taken') throw volumeIsTaken(underWay);
    await cancelOperation(tx, underWay, machineWasDeleted());
    cancelled.push(underWay);
  }
  if (machine?.state === 'running' && LEAVES_RUNNING.includes(request.kind)) {
    checkMayRun(await getAccount(tx, machine.account_id));
  }
  const begun = await request.begin(tx, machine);
  // The requests of these operations fail, so their clients can use the idempotency keys again.
  for (const operation of cancelled) await freeKeyOf(tx, operation);
  return begun === 'noop' ? { kind: 'noop' } : { kind: 'begun', claimed: begun };
}
