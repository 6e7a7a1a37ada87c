// The disks that a host has besides those that count: what a move brings to its new host, and what it leaves on the old
// one. Room for each is reserved on its host from the beginning of the move until the disk is deleted there.
//
//   move begins:    room is reserved on the new host
//   copy is whole:  the row names the new host; the old disk is now the copy that has to be deleted
//   move fails:     what has arrived on the new host is the copy that has to be deleted
//   copy deleted:   its room is released, in the transaction that finishes `remove_copy`
import type { Tx } from '../db/database.ts';
import type { HostCopy, OperationRow } from '../db/tables.ts';
import { insertDue } from '../operations/store.ts';

/**
 * Inserts the operations that delete copies on a host and release their room. They have neither a machine nor a volume,
 * because these can be used meanwhile: the copies have earlier generations.
 */
export async function removeCopies(
  tx: Tx,
  { account_id, actor }: Pick<OperationRow, 'account_id' | 'actor'>,
  hostId: string,
  copies: readonly HostCopy[],
): Promise<void> {
  for (const copy of copies) {
    await insertDue(tx, {
      ...{ account_id, host_id: hostId, actor, kind: 'remove_copy', args: JSON.stringify({ copies: [copy] }) },
      ...{ machine_id: null, volume_id: null, snapshot_id: null },
    });
  }
}
