// Operations that the service begins by itself because of the state of an account: those of the spend guard and of the
// reclaimer. The account may change before the operation begins. So the transaction that inserts the operation checks
// the account again.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { lockMachine } from '../machines/store.ts';
import { type Begun, isOvertaken } from '../operations/request.ts';
import { type Claimed, lockUnfinished, type Subject } from '../operations/store.ts';
import { performDue } from './due.ts';

export type OwnOperation = {
  subject: Subject;
  /** Inserts the operation. `machine` is the locked row of the subject's machine. May throw a refusal. */
  begin: (tx: Tx, machine: MachineRow | undefined) => Promise<Begun>;
  /**
   * Locks the account's row and returns whether the reason for the operation still holds. It is called right before the
   * commit. So a payment is either seen here, or comes after the operation has begun.
   */
  isStillDue: (tx: Tx) => Promise<boolean>;
};

/** Thrown to roll the transaction back when the reason for the operation no longer holds. */
class CalledOff extends Error {}

/**
 * Begins an operation and makes its first attempt. If the attempt fails, it is logged, and the reconciler repeats it.
 * Does nothing when another operation on the same machine, volume or snapshot is unfinished, when the reason no
 * longer holds, or when the state of the rows no longer allows the operation. A later pass of the caller looks again.
 * Returns true if the operation began.
 */
export async function performOwn(app: App, own: OwnOperation): Promise<boolean> {
  const claimed = await beginOwn(app, own);
  if (claimed) await performDue(app, claimed);
  return claimed !== undefined;
}

async function beginOwn(app: App, { subject, begin, isStillDue }: OwnOperation): Promise<Claimed | undefined> {
  try {
    return await inTransaction(app.db, async (tx) => {
      const [machine, unfinished] = await Promise.all([
        subject.machineId === undefined ? undefined : lockMachine(tx, subject.machineId),
        lockUnfinished(tx, subject),
      ]);
      const begun = unfinished.length > 0 ? 'noop' : await begin(tx, machine);
      if (begun === 'noop') return undefined;
      if (!(await isStillDue(tx))) throw new CalledOff();
      return begun;
    });
  } catch (error) {
    if (!(error instanceof CalledOff || error instanceof ServiceError || isOvertaken(error))) throw error;
    app.log.debug({ err: error, ...subject }, 'an operation of the service was called off');
    return undefined;
  }
}
