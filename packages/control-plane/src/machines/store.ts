// SQL of machines. Their states change in transitions/transition.ts only.
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { MachineRow, OperationRow } from '../db/tables.ts';
import { isNoExpiry } from '../operations/store.ts';
import { machineNotFound } from './refusals.ts';

/** A machine as clients see it: its row, what is under way for it, and when it expires. */
export type MachineView = MachineRow & {
  operation_kind: OperationRow['kind'] | null;
  operation_since: Date | null;
  operation_attempts: number | null;
  operation_error: string | null;
  expires_at: Date | null;
};

/** The machines that their accounts see. A create that is being taken back hides its machine. */
export function selectMachineViews(db: Db | Tx) {
  const views = db
    .selectFrom('machines')
    .leftJoin('operations', (join) =>
      join.onRef('operations.machine_id', '=', 'machines.id').on('operations.finished_at', 'is', null).on(isNoExpiry),
    )
    .leftJoin('operations as expiry', (join) =>
      join
        .onRef('expiry.machine_id', '=', 'machines.id')
        .on('expiry.finished_at', 'is', null)
        .on(sql<boolean>`expiry.kind = 'expire'`),
    )
    .selectAll('machines')
    .select([
      'operations.kind as operation_kind',
      'operations.created_at as operation_since',
      'operations.attempts as operation_attempts',
      'operations.last_error as operation_error',
      'expiry.run_at as expires_at',
    ])
    .where(sql<boolean>`(operations.undoing and operations.kind = 'create') is not true`);
  return db.selectFrom(views.as('machines')).selectAll();
}

const selectMachineOf = statement((db, accountId: string, id: string) =>
  selectMachineViews(db).where('id', '=', id).where('account_id', '=', accountId),
);

/** The machine as its owner sees it. Throws `not_found`, the same for an absent one and another account's. */
export async function findMachine(app: App, accountId: string, id: string): Promise<MachineView> {
  const [row] = await selectMachineOf(app.db, accountId, id);
  if (!row) throw machineNotFound();
  return row;
}

/** The row of a machine, whoever it belongs to. */
export function getMachineRow(db: Db | Tx, id: string): Promise<MachineRow | undefined> {
  return db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();
}

/** The row of a machine, locked until the transaction ends. */
export async function lockMachine(tx: Tx, id: string): Promise<MachineRow | undefined> {
  return (await selectForUpdate(tx, id))[0];
}

const selectForUpdate = statement((db, id: string) =>
  db.selectFrom('machines').selectAll().where('id', '=', id).forNoKeyUpdate(),
);

/** Makes calls of earlier generations ineffective on the host. Returns the row; the caller tells the host. */
export function bumpGeneration(tx: Tx, id: string): Promise<MachineRow> {
  return tx
    .updateTable('machines')
    .set({ generation: sql`generation + 1` })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Whether a machine has snapshots that a client sees, or that are being made. */
export async function hasSnapshots(db: Db | Tx, machineId: string): Promise<boolean> {
  const row = await db
    .selectFrom('snapshots')
    .select('id')
    .where('machine_id', '=', machineId)
    .where('state', '<>', 'deleting')
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}
