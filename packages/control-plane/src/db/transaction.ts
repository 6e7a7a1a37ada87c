// Runs transactions. To avoid deadlocks, every transaction locks rows in this order of their tables:
//
//   machine, operation, volume, snapshot, job, payment event, guess of a device login, device login, account, join
//   token, host, idempotency key, publication, blob
//
// A transaction that locks several volumes or several snapshots locks them in the order of their ids, and several blobs
// in the order of their digests. A new operation is inserted before its volume or snapshot is locked, because the
// insert waits for a transaction that finishes another operation on the same volume or snapshot.
import { CompiledQuery, type Dialect, DummyDriver, Transaction } from 'kysely';
import type { Db, Tx } from './database.ts';
import { createDialect, isPlanOutdated, PooledConnection } from './driver.ts';
import { isTransactionConflict } from './failures.ts';
import type { Database } from './tables.ts';

const dialect: Dialect = createDialect({
  servers: [],
  config: {},
  role: undefined,
  onIdleError: () => undefined,
  onMove: () => undefined,
});
/**
 * Kysely's constructor of a transaction requires these values, but uses them for nested transactions only. There are
 * none here.
 */
const UNUSED = { config: { dialect }, dialect, driver: new DummyDriver() };

/**
 * Runs `work` in a transaction and returns its result. If `work` throws, everything is rolled back and the error is
 * thrown.
 *
 * Statements that `work` starts without waiting for each other (`Promise.all`) are sent together, which saves round
 * trips to the database. PostgreSQL runs them in the order in which they were started. Kysely's own transaction waits
 * for each answer: in bench/transactions.ts, four statements take 0.2 to 0.3 ms with Kysely's transaction and 0.15 ms
 * with this one, without a synced commit.
 *
 * `work` runs again if a newer replica has changed the columns of a table, or if PostgreSQL rolled everything back
 * because of a parallel transaction. It does not run again when the connection broke: throws `CommitUnknown` if that
 * happened during the commit.
 */
export async function inTransaction<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T> {
  for (let run = 1; ; run++) {
    try {
      return await runOnce(db, work);
    } catch (error) {
      if (run === RUNS_MAX || !(isPlanOutdated(error) || isTransactionConflict(error))) throw error;
    }
  }
}

/** How often the work of a transaction runs at most. */
const RUNS_MAX = 3;

function runOnce<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T> {
  const executor = db.getExecutor();
  return executor.provideConnection(async (connection) => {
    if (!(connection instanceof PooledConnection))
      throw new Error('A transaction needs a connection of our own driver.');
    connection.isInTransaction = true;
    // If `begin` fails, the statements behind it fail with the same error, so it need not be handled here.
    connection.send('begin').catch(() => undefined);
    const provider = { provideConnection: <R>(use: (own: typeof connection) => Promise<R>) => use(connection) };
    const tx = new Transaction<Database>({ ...UNUSED, executor: executor.withConnectionProvider(provider) });
    try {
      const result = await work(tx);
      await connection.commit();
      return result;
    } catch (error) {
      // If the connection is broken, PostgreSQL rolls back by itself.
      await connection.send('rollback').catch(() => undefined);
      throw error;
    }
  });
}

/**
 * Makes the commit of this transaction return before PostgreSQL has written it to disk. A crash of PostgreSQL can then
 * lose the transaction as a whole. The next synced commit also writes every transaction before it.
 */
export async function commitUnsynced(tx: Tx): Promise<void> {
  await tx.executeQuery(CompiledQuery.raw('set local synchronous_commit = off'));
}

/**
 * Opens `count` connections in advance, so that the first requests do not wait for them. Throws when the database does
 * not answer.
 */
export async function openConnections(db: Db, count: number): Promise<void> {
  await Promise.all(Array.from({ length: count }, () => db.executeQuery(CompiledQuery.raw('select 1'))));
}
