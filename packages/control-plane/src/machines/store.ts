// The SQL of machines. Only transitions/transition.ts changes a machine's state.
import { type ExpressionBuilder, sql } from 'kysely';
import { jsonObjectFrom } from 'kysely/helpers/postgres';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { Database, MachineRow, OperationRow } from '../db/tables.ts';
import { isNoExpiry } from '../operations/store.ts';
import { machineNotFound } from './refusals.ts';

/** A machine's row with its unfinished operation and the time of its expiry, for answers to clients. */
export type MachineView = MachineRow & { operation: UnfinishedOperation | null; expires_at: Date | null };

/** The columns of an unfinished operation that clients see. `created_at` is in PostgreSQL's JSON format. */
type UnfinishedOperation = Pick<OperationRow, 'kind' | 'attempts' | 'last_error'> & { created_at: string };

/** Query for machines as clients see them. A machine whose failed create is being undone is hidden. */
export function selectMachineViews(db: Db | Tx) {
  const views = db
    .selectFrom('machines')
    .selectAll()
    // Subqueries and not joins, because PostgreSQL plans and runs them in less time (bench/get-machine.ts).
    .select((machine) => [
      jsonObjectFrom(
        unfinishedOf(machine).where(isNoExpiry).select(['kind', 'created_at', 'attempts', 'last_error']),
      ).as('operation'),
      unfinishedOf(machine).where('kind', '=', sql.lit('expire')).select('run_at').as('expires_at'),
    ])
    .where((machine) =>
      machine.not(
        machine.and([
          // It is in error while its host is away.
          sql<boolean>`machines.state in ('provisioning', 'error')`,
          machine.exists(
            unfinishedOf(machine)
              .where('kind', '=', sql.lit('create'))
              .where('undoing', '=', sql.lit(true))
              .select('id'),
          ),
        ]),
      ),
    );
  return db.selectFrom(views.as('machines')).selectAll();
}

/** Query for the unfinished operations of a machine, as a subquery. */
export const unfinishedOf = (machine: ExpressionBuilder<Database, 'machines'>) =>
  machine.selectFrom('operations').whereRef('machine_id', '=', 'machines.id').where('finished_at', 'is', null);

const selectMachineOf = statement((db, accountId: string, id: string) =>
  selectMachineViews(db).where('id', '=', id).where('account_id', '=', accountId),
);

/**
 * Returns a machine of the account. Throws `not_found`, with the same text for a machine that does not exist and for a
 * machine of another account.
 */
export async function findMachine(app: App, accountId: string, id: string): Promise<MachineView> {
  const [row] = await selectMachineOf(app.db, accountId, id);
  if (!row) throw machineNotFound();
  return row;
}

/** Returns the row of a machine of any account, including hidden ones. */
export function getMachineRow(db: Db | Tx, id: string): Promise<MachineRow | undefined> {
  return db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Returns the row of a machine and locks it until the transaction ends. */
export async function lockMachine(tx: Tx, id: string): Promise<MachineRow | undefined> {
  return (await selectForUpdate(tx, id))[0];
}

const selectForUpdate = statement((db, id: string) =>
  db.selectFrom('machines').selectAll().where('id', '=', id).forNoKeyUpdate(),
);

/**
 * Increments a machine's generation and returns the new row. Once the host has seen the new generation, it ignores
 * calls of earlier ones. The caller must send the new generation to the host.
 */
export function bumpGeneration(tx: Tx, id: string): Promise<MachineRow> {
  return tx
    .updateTable('machines')
    .set({ generation: sql`generation + 1` })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

/**
 * Returns true if a machine has snapshots, including snapshots that are still being created, but not those that are
 * being deleted.
 */
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
