// The first step of every undo of a machine's operation: the machine gets a new generation, so that the host ignores
// calls of the failed attempt that arrive late.
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { bumpGeneration, lockMachine } from '../machines/store.ts';
import { machineOf, type Work } from './definition.ts';
import { updateClaimed } from './store.ts';

/**
 * Increments the machine's generation before an undo. From then on the host ignores late calls of the failed attempt.
 * Returns the new row. Throws `ClaimLost`.
 */
export function bumpForUndo(app: App, { claimed, ...work }: Work): Promise<MachineRow> {
  const { id } = machineOf(work);
  return inTransaction(app.db, async (tx) => {
    await Promise.all([lockMachine(tx, id), updateClaimed(tx, claimed, { undoing: true })]);
    return bumpGeneration(tx, id);
  });
}
