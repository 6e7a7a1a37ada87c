// Operations as tests see them: what is under way, and what a process that died has left.
import { randomUUID } from 'node:crypto';
import type { App } from '../../src/app.ts';
import type { AnyOperationKind, OperationArguments, OperationRow } from '../../src/db/tables.ts';
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
  /** Somebody seems to work on it for another minute. */
  isClaimed?: boolean;
};

/** Writes down an operation of a machine that nobody works on, as a process leaves it that dies right after. */
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

/** Whether an operation about the machine, volume or snapshot is under way. */
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
