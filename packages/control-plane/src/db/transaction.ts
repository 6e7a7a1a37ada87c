// Transactions, and the one order in which they lock rows. Two transactions that lock in this order never wait for each
// other in a circle:
//
//   machine, operation, volume, snapshot, job, account, host, idempotency key
//
// An operation is inserted, too, before its volume or snapshot is locked: the insert waits for a transaction that finishes
// another operation on the same volume. Where one transaction locks several volumes, it locks them in the order of their ids.
import { CompiledQuery, type Dialect, DummyDriver, Transaction } from 'kysely';
import type { Db, Tx } from './database.ts';
import { createDialect, isPlanOutdated, PooledConnection } from './driver.ts';
import type { Database } from './tables.ts';

const dialect: Dialect = createDialect({}, () => undefined);
/** Kysely asks for these to make a transaction, and uses them for nothing but transactions within it, which we have none of. */
const UNUSED = { config: { dialect }, dialect, driver: new DummyDriver() };

/**
 * Runs `work` as one transaction. Statements that `work` starts without waiting for each other (`Promise.all`) are sent
 * together, which saves exchanges with the database; PostgreSQL runs them in the order in which they were started. When
 * one of them fails, everything is rolled back. (Kysely's own transaction sends one statement after the other. For four
 * statements bench/transactions.ts shows 0.2 to 0.3 ms there and 0.15 ms here, without a synced commit.)
 */
export async function inTransaction<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T> {
  try {
    return await runOnce(db, work);
  } catch (error) {
    if (!isPlanOutdated(error)) throw error;
    return runOnce(db, work);
  }
}

function runOnce<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T> {
  const executor = db.getExecutor();
  return executor.provideConnection(async (connection) => {
    if (!(connection instanceof PooledConnection))
      throw new Error('A transaction needs a connection of our own driver.');
    connection.isInTransaction = true;
    // Its failure is the failure of the statements behind it as well.
    connection.send('begin').catch(() => undefined);
    const provider = { provideConnection: <R>(use: (own: typeof connection) => Promise<R>) => use(connection) };
    const tx = new Transaction<Database>({ ...UNUSED, executor: executor.withConnectionProvider(provider) });
    try {
      const result = await work(tx);
      await connection.commit();
      return result;
    } catch (error) {
      // On a connection that broke, PostgreSQL rolls back by itself.
      await connection.send('rollback').catch(() => undefined);
      throw error;
    }
  });
}

/** Opens `count` connections, so that no request waits for one. Throws when the database is away. */
export async function openConnections(db: Db, count: number): Promise<void> {
  await Promise.all(Array.from({ length: count }, () => db.executeQuery(CompiledQuery.raw('select 1'))));
}
