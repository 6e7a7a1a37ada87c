// Connects Kysely to PostgreSQL through a connection pool (pool.ts). It differs from Kysely's own driver in two points.
// Each connection prepares every statement once. And a connection on which a statement timed out is closed, so that its
// late answer cannot be taken for the answer to the next statement.
import type { Duplex } from 'node:stream';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
} from 'kysely';
import type pg from 'pg';
import { CommitUnknown, DatabaseAway, isDatabaseAway } from './failures.ts';
import { ConnectionPool, type Lease, type PoolSettings, socketOf } from './pool.ts';

/** pg's error message when a statement is not answered within `query_timeout`. */
const READ_TIMEOUT = 'Query read timeout';

/**
 * What the metrics learn. `opened`: the pool was opened. `failed`: a statement failed, or no connection could be had.
 */
export type DriverEvents = {
  opened?: (pool: ConnectionPool) => void;
  failed?: (error: unknown) => void;
};

/** Returns a Kysely dialect. Its pool is created with `settings` at the first statement. */
export function createDialect(settings: PoolSettings, events: DriverEvents = {}): Dialect {
  return {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new PooledDriver(settings, events),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
}

class PooledDriver implements Driver {
  readonly #settings: PoolSettings;
  readonly #events: DriverEvents;
  #pool: ConnectionPool | undefined;

  constructor(settings: PoolSettings, events: DriverEvents) {
    this.#settings = settings;
    this.#events = events;
  }

  async init(): Promise<void> {
    this.#pool = new ConnectionPool(this.#settings);
    this.#events.opened?.(this.#pool);
  }

  async acquireConnection(): Promise<PooledConnection> {
    if (!this.#pool) throw new DatabaseAway('The database was closed.');
    const { failed } = this.#events;
    const lease = await this.#pool.take().catch((error: unknown) => {
      failed?.(error);
      throw error;
    });
    return new PooledConnection(lease, failed);
  }

  async beginTransaction(connection: PooledConnection, { isolationLevel }: { isolationLevel?: string }): Promise<void> {
    await connection.send(isolationLevel ? `start transaction isolation level ${isolationLevel}` : 'begin');
  }

  async commitTransaction(connection: PooledConnection): Promise<void> {
    await connection.commit();
  }

  async rollbackTransaction(connection: PooledConnection): Promise<void> {
    await connection.send('rollback');
  }

  async releaseConnection(connection: PooledConnection): Promise<void> {
    connection.release();
  }

  async destroy(): Promise<void> {
    await this.#pool?.end();
    this.#pool = undefined;
  }
}

/** A connection that was taken from the pool and is returned by `release`. */
export class PooledConnection implements DatabaseConnection {
  readonly #lease: Lease;
  readonly #client: pg.PoolClient;
  readonly #onFailure: ((error: unknown) => void) | undefined;
  isInTransaction = false;
  #firstFailure: unknown;

  /** `onFailure` is called for each failed statement, but not for those that fail because one before them failed. */
  constructor(lease: Lease, onFailure: ((error: unknown) => void) | undefined) {
    this.#lease = lease;
    this.#client = lease.client;
    this.#onFailure = onFailure;
  }

  async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    const { sql, parameters } = query;
    try {
      const { rows, rowCount } = await this.#query({ name: nameOf(sql), text: sql, values: [...parameters] });
      return { rows: rows as Row[], numAffectedRows: BigInt(rowCount ?? 0) };
    } catch (error) {
      if (!isPlanOutdated(error)) throw error;
      forgetNames();
      // After an error PostgreSQL accepts no more statements in the transaction, so transaction.ts repeats the whole
      // transaction.
      if (this.isInTransaction) throw error;
      return this.executeQuery(query);
    }
  }

  /** Sends SQL text without parameters and without preparing it. */
  async send(text: string): Promise<pg.QueryResult> {
    return this.#query({ name: undefined, text, values: [] });
  }

  /**
   * Commits the transaction. If an earlier statement failed, PostgreSQL answers a commit with a rollback; then this
   * function throws the error of that statement. Throws `CommitUnknown` if the connection breaks before the answer, or
   * if somebody cancelled the wait for the standby: then the commit may be lost in a failover.
   */
  async commit(): Promise<void> {
    let warning: string | undefined;
    const note = ({ severity, message }: { severity?: string | undefined; message?: string | undefined }) => {
      if (severity === 'WARNING') warning = message ?? 'a warning';
    };
    this.#client.on('notice', note);
    try {
      const { command } = await this.send('commit');
      if (command !== 'COMMIT') {
        throw this.#firstFailure ?? new Error('A failed transaction was committed, so PostgreSQL rolled it back.');
      }
      if (warning !== undefined) throw new CommitUnknown(new Error(warning));
    } catch (error) {
      // If an earlier statement has failed, PostgreSQL does not commit, whatever happens to the connection.
      throw this.#firstFailure === error && isDatabaseAway(error) ? new CommitUnknown(error) : error;
    } finally {
      this.#client.removeListener('notice', note);
    }
  }

  release(): void {
    this.#lease.release();
  }

  // biome-ignore lint/correctness/useYield: Kysely's interface requires a generator, but this driver streams no rows.
  async *streamQuery<Row>(): AsyncIterableIterator<QueryResult<Row>> {
    throw new Error('This driver does not stream rows.');
  }

  async #query({ name, text, values }: { name: string | undefined; text: string; values: unknown[] }) {
    writeTogether(socketOf(this.#client));
    try {
      return await this.#client.query(name === undefined ? { text, values } : { name, text, values });
    } catch (thrown) {
      const error = isBroken(this.#client) && !isDatabaseAway(thrown) ? new DatabaseAway(thrown) : thrown;
      // Statements that follow on this connection fail at once instead of timing out one after the other.
      if (error instanceof Error && error.message === READ_TIMEOUT) socketOf(this.#client).destroy();
      this.#lease.noteFailure(error);
      // Statements in a pipeline behind a failed one fail with "transaction is aborted". Throw the first error instead,
      // which has the cause.
      if (isAborted(error) && this.#firstFailure !== undefined) throw this.#firstFailure;
      this.#firstFailure ??= error;
      if (!isPlanOutdated(error)) this.#onFailure?.(error);
      throw error;
    }
  }
}

/**
 * Returns true if no statement can use the connection any more. Then its statements failed because of that, whatever
 * their error is: it can come from pg, from Node's sockets or from TLS.
 */
const isBroken = (client: pg.PoolClient): boolean =>
  socketOf(client).destroyed || (client as unknown as { _queryable: boolean })._queryable === false;

const isAborted = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === '25P02';

/**
 * Delays writes to the socket until the running code and its promise callbacks are done. The statements that they start
 * are then written by one system call, which is a third of the processor time of a statement.
 */
function writeTogether(socket: Duplex): void {
  socket.cork();
  process.nextTick(() => socket.uncork());
}

/**
 * Returns true if a newer replica has added a column to a table for which this connection prepared a `select *`.
 * PostgreSQL refuses to run a prepared statement whose result columns have changed.
 */
export const isPlanOutdated = (error: unknown): boolean =>
  error instanceof Error && error.message === 'cached plan must not change result type';

/**
 * Limit of prepared statements, above the number that the code normally uses. Lists of varying length can create more
 * texts; statements beyond the limit are not prepared.
 */
const PREPARED_MAX = 1_000;
const names = new Map<string, string>();
let renamed = 0;

/**
 * Returns the name for preparing a statement, or undefined if it should not be prepared. The same text gets the same
 * name on every connection.
 */
function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined) return known;
  if (names.size >= PREPARED_MAX) return undefined;
  const name = `sandbar_${renamed}_${names.size}`;
  names.set(text, name);
  return name;
}

/** Forgets all names, so that every statement is prepared again under a new name. */
function forgetNames(): void {
  names.clear();
  renamed++;
}
