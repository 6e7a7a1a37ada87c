// The shape of an entry of OPERATIONS: what a kind of operation asks of a host, and what it records.
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, OperationRow } from '../db/tables.ts';
import type { Steps } from '../transitions/transition.ts';
import type { Claimed } from './store.ts';

/** A claimed operation with the row of its machine, read when the attempt began. */
export type Work = { claimed: Claimed; operation: OperationRow; machine: MachineRow | undefined };

/** What records a result: it runs in the transaction that finishes the operation, on the machine's locked row. */
export type Recording = { app: App; tx: Tx; steps: Steps; operation: OperationRow; machine: MachineRow | undefined };

/** Asks the host, which may be repeated any number of times, and then records what came out of it. */
export type Act<Outcome> = {
  run(app: App, work: Work): Promise<Outcome>;
  /** Returns the row of the machine as it is then, where the answer to a request needs it. */
  done(recording: Recording, outcome: Outcome): Promise<MachineRow | undefined> | Promise<void>;
};

export type Definition = {
  act: Act<unknown>;
  /** Takes back what a refused attempt did. Without it a failed attempt is repeated until it succeeds. */
  undo?: Act<unknown>;
  /** Whether a failed attempt is taken back; otherwise it is repeated later. */
  isRefusal?: (error: unknown, operation: OperationRow) => boolean;
  /** What happens when the process that worked on it died: the default is to go on. */
  afterCrash?: 'undo';
};

/** Keeps the type of the outcome between `run` and `done`, which the table of all kinds cannot know. */
export const act = <Outcome>(run: Act<Outcome>['run'], done: Act<Outcome>['done']): Act<unknown> => ({
  run,
  done: (recording, outcome) => done(recording, outcome as Outcome),
});

/** The machine of an operation that has one. */
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
