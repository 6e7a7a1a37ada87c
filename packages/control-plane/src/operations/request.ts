// How a request becomes an operation: it joins the same one that is under way, waits for another, or writes its own row and
// works on it.
import type { App } from '../app.ts';
import { isUniqueViolation, type Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { lockMachine } from '../machines/store.ts';
import { performClaimed } from './perform.ts';
import { ClaimLost, machineIsLeaving, machineWasDeleted } from './refusals.ts';
import { type Asked, relate } from './relate.ts';
import { type Claimed, cancelOperation, lockUnfinished } from './store.ts';
import { joinOperation, waitForOperation } from './wait.ts';

/** What to do with an operation: `noop` when things are as asked for already. */
export type Begun = Claimed | 'noop';

export type OperationRequest = Asked & {
  /**
   * Decides on locked rows, and writes the operation with what belongs to its beginning. `machine` is the row of the
   * machine that is asked for; absent for operations without one. Throws the refusal that applies.
   */
  begin: (tx: Tx, machine: MachineRow | undefined) => Promise<Begun>;
  /** How long it waits for other operations, ms; `operationWaitMs` when absent. */
  waitMs?: number;
};

/** How a request ended: its own operation was done, it joined one, or nothing was to be done. */
export type Ended = 'done' | 'joined' | 'noop';

type Step = { kind: 'begun'; claimed: Claimed } | { kind: 'join' | 'wait'; id: string } | { kind: 'noop' };

/**
 * Runs an operation to its end, for a request. Throws what `begin` and the operation are refused with; `conflict` when it
 * waited for another operation in vain (60 s); `host_unavailable`, and then a retry joins what is still under way.
 */
export async function requestOperation(app: App, request: OperationRequest): Promise<Ended> {
  const deadline = performance.now() + (request.waitMs ?? app.config.timing.operationWaitMs);
  for (;;) {
    const step = await decideOnce(app, request);
    if (step === undefined) continue;
    if (step.kind === 'noop') return 'noop';
    if (step.kind === 'join') {
      await joinOperation(app, step.id, deadline);
      return 'joined';
    }
    if (step.kind === 'begun') {
      await performForRequest(app, step.claimed, undefined, deadline);
      return 'done';
    }
    await waitForOperation(app, step.id, deadline);
  }
}

const ONE_AT_A_TIME = ['operations_machine', 'operations_volume', 'operations_snapshot'];

/** Undefined when another operation about the volume or the snapshot began in the same moment: look again. */
async function decideOnce(app: App, request: OperationRequest): Promise<Step | undefined> {
  try {
    return await inTransaction(app.db, (tx) => decide(tx, request));
  } catch (error) {
    if (!ONE_AT_A_TIME.some((index) => isUniqueViolation(error, index))) throw error;
    return undefined;
  }
}

/**
 * Works on an operation that the caller has begun. When another process takes it over, its result is the answer. Returns
 * the new row of a machine that this process has made.
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
  for (const underWay of unfinished) {
    const relation = relate(underWay, request);
    if (relation === 'join' || relation === 'wait') return { kind: relation, id: underWay.id };
    if (relation === 'refuse') throw machineIsLeaving();
    await cancelOperation(tx, underWay, machineWasDeleted());
  }
  const begun = await request.begin(tx, machine);
  return begun === 'noop' ? { kind: 'noop' } : { kind: 'begun', claimed: begun };
}
