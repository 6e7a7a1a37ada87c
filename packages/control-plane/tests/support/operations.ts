// Reads unfinished operations, and inserts operations in the state in which a process that died leaves them.
import { randomUUID } from 'node:crypto';
import type { AnyOperationKind } from '@sandbar/contract/machine-states.ts';
import type { App } from '../../src/app.ts';
import type { OperationArguments, OperationRow } from '../../src/db/tables.ts';
import { inTransaction } from '../../src/db/transaction.ts';
import { bumpGeneration, lockMachine } from '../../src/machines/store.ts';

type Db = App['db'];

export type Left = {
  kind: AnyOperationKind;
  volumeId?: string;
  snapshotId?: string;
  args?: OperationArguments;
  undoing?: boolean;
  actor?: OperationRow['actor'];
  /** Whether the operation has a claim for another minute, as if a process were performing it. */
  isClaimed?: boolean;
};

/** Inserts an unfinished operation, as if a process died right after it wrote the row. Returns its id. */
export function leaveOperation(db: Db, machineId: string, left: Left): Promise<string> {
  return inTransaction(db, async (tx) => {
    const machine = await lockMachine(tx, machineId);
    if (!machine) throw new Error('There is no such machine.');
    const { id } = await tx
      .insertInto('operations')
      .values({
        ...{ account_id: machine.account_id, host_id: machine.host_id, machine_id: machineId },
        volume_id: left.volumeId ?? null,
        snapshot_id: left.snapshotId ?? null,
        kind: left.kind,
        args: JSON.stringify(left.args ?? {}),
        actor: left.actor ?? 'user',
        undoing: left.undoing ?? false,
        attempts: 1,
        claim_token: left.isClaimed ? randomUUID() : null,
        claim_expires_at: left.isClaimed ? new Date(Date.now() + 60_000) : null,
      })
      .returning('id')
      .executeTakeFirstOrThrow();
    if (left.kind !== 'snapshot') await bumpGeneration(tx, machineId);
    return id;
  });
}

/** Returns whether an unfinished operation names this machine, volume or snapshot. */
export async function isBusy(db: Db, id: string): Promise<boolean> {
  const row = await db
    .selectFrom('operations')
    .select('id')
    .where('finished_at', 'is', null)
    .where('kind', '<>', 'expire')
    .where((is) => is.or([is('machine_id', '=', id), is('volume_id', '=', id), is('snapshot_id', '=', id)]))
    .executeTakeFirst();
  return row !== undefined;
}
