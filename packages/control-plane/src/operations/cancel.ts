// Ends an unfinished operation before its time.
import type { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { Tx } from '../db/database.ts';
import type { OperationRow } from '../db/tables.ts';
import { removeCopies } from '../moves/copies.ts';
import { toColumns } from './store.ts';

/**
 * Ends an unfinished operation because another one replaces it. The process that performs it fails with `ClaimLost` at
 * its next write. What a move has brought to the other host by then is removed there.
 */
export async function cancelOperation(tx: Tx, operation: OperationRow, refusal: ServiceError): Promise<void> {
  await tx
    .updateTable('operations')
    .set({ finished_at: sql<Date>`now()`, claim_token: null, claim_expires_at: null, ...toColumns(refusal) })
    .where('id', '=', operation.id)
    .execute();
  const { to_host_id, copies } = operation.args;
  if (to_host_id !== undefined && copies) await removeCopies(tx, operation, to_host_id, copies);
}
