// The types of an entry of the table OPERATIONS (operations/kinds.ts): what a kind of operation asks of a host, and
// what it records in the database.
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, OperationRow } from '../db/tables.ts';
import type { Steps } from '../transitions/transition.ts';
import type { Claimed } from './store.ts';

/** The input of an attempt: the claimed operation and its machine's row, as it was when the attempt began. */
export type Work = {
  claimed: Claimed;
  operation: OperationRow;
  machine: MachineRow | undefined;
  /** In an undo right after a failed attempt of this process: its error. */
  cause?: unknown;
  /** How far this attempt has come. Set by the `run` of a kind whose change on the host cannot be reverted. */
  progress?: 'asked the host' | 'done by the host';
};

/**
 * The input of `done`, which records a result. It runs in the transaction that finishes the operation. `machine` is the
 * machine's locked row.
 */
export type Recording = { app: App; tx: Tx; steps: Steps; operation: OperationRow; machine: MachineRow | undefined };

/**
 * One part of an operation (its action or its undo): first `run` calls the host, then `done` records the outcome in the
 * database. `run` must be safe to repeat any number of times.
 */
export type Act<Outcome> = {
  run(app: App, work: Work): Promise<Outcome>;
  /** Returns the machine's new row if the answer to the request needs it. */
  done(recording: Recording, outcome: Outcome): Promise<MachineRow | undefined> | Promise<void>;
};

export type Definition = {
  act: Act<unknown>;
  /** Reverts what a refused attempt did. A kind without `undo` repeats a failed attempt until it succeeds. */
  undo?: Act<unknown>;
  /**
   * Returns true for errors after which the attempt is undone. After other errors it is repeated later. Without this
   * function every other error does. A lost claim and a failure of the database never lead to an undo.
   */
  isRefusal?: (error: unknown, work: Work) => boolean;
  /** What to do after a crash of the process that performed the operation: undo it, or (by default) repeat it. */
  afterCrash?: 'undo';
};

/**
 * Checks at compile time that `done` accepts what `run` returns. The table of all kinds cannot express this, since each
 * kind has its own outcome type.
 */
export const act = <Outcome>(run: Act<Outcome>['run'], done: Act<Outcome>['done']): Act<unknown> => ({
  run,
  done: (recording, outcome) => done(recording, outcome as Outcome),
});

/** Returns the row of an operation's machine. Throws an Error if there is none, which is a bug. */
export function machineOf({
  machine,
  operation,
}: {
  machine: MachineRow | undefined;
  operation: OperationRow;
}): MachineRow {
  if (!machine) throw new Error(`The ${operation.kind} operation ${operation.id} has no machine.`);
  return machine;
}
