// Connects Kysely to PostgreSQL through a connection pool of the package pg. It differs from Kysely's own driver in two
// points. Each connection prepares every statement once. And a connection on which a statement timed out is closed, so
// that its late answer cannot be taken for the answer to the next statement.
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
import pg from 'pg';

/** pg's error message when a statement is not answered within `query_timeout`. */
const READ_TIMEOUT = 'Query read timeout';

/**
 * Returns a Kysely dialect. Its pool is created with `options` at the first statement. `onIdleError` is called when an
 * idle connection breaks.
 */
export function createDialect(options: pg.PoolConfig, onIdleError: (error: Error) => void): Dialect {
  return {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new PooledDriver(options, onIdleError),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
}

class PooledDriver implements Driver {
  readonly #options: pg.PoolConfig;
  readonly #onIdleError: (error: Error) => void;
  #pool: pg.Pool | undefined;

  constructor(options: pg.PoolConfig, onIdleError: (error: Error) => void) {
    this.#options = options;
    this.#onIdleError = onIdleError;
  }

  async init(): Promise<void> {
    this.#pool = new pg.Pool(this.#options);
    // Without this listener, an idle connection that breaks would crash the process. The next statement opens a new
    // connection.
    this.#pool.on('error', this.#onIdleError);
    // The same for a connection that breaks between two statements of a transaction. There is nothing else to do: the
    // next statement fails and reports it.
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
  }

  async acquireConnection(): Promise<PooledConnection> {
    if (!this.#pool) throw new Error('The database was closed.');
    return new PooledConnection(await this.#pool.connect());
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
  readonly #client: pg.PoolClient;
  isInTransaction = false;
  #isBroken = false;
  #firstFailure: unknown;

  constructor(client: pg.PoolClient) {
    this.#client = client;
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
   * function throws the error of that statement.
   */
  async commit(): Promise<void> {
    const { command } = await this.send('commit');
    if (command === 'COMMIT') return;
    throw this.#firstFailure ?? new Error('A failed transaction was committed, so PostgreSQL rolled it back.');
  }

  release(): void {
    this.#client.release(this.#isBroken);
  }

  // biome-ignore lint/correctness/useYield: Kysely's interface requires a generator, but this driver streams no rows.
  async *streamQuery<Row>(): AsyncIterableIterator<QueryResult<Row>> {
    throw new Error('This driver does not stream rows.');
  }

  async #query({ name, text, values }: { name: string | undefined; text: string; values: unknown[] }) {
    writeTogether(socketOf(this.#client));
    try {
      return await this.#client.query(name === undefined ? { text, values } : { name, text, values });
    } catch (error) {
      if (error instanceof Error && error.message === READ_TIMEOUT) {
        this.#isBroken = true;
        // Statements that follow on this connection fail at once instead of timing out one after the other.
        socketOf(this.#client).destroy();
      }
      // Statements in a pipeline behind a failed one fail with "transaction is aborted". Throw the first error instead,
      // which has the cause.
      if (isAborted(error) && this.#firstFailure !== undefined) throw this.#firstFailure;
      this.#firstFailure ??= error;
      throw error;
    }
  }
}

const isAborted = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === '25P02';

/**
 * Delays writes to the socket until the running code and its promise callbacks are done. The statements that they start
 * are then written by one system call, which is a third of the processor time of a statement.
 */
function writeTogether(socket: Duplex): void {
  socket.cork();
  process.nextTick(() => socket.uncork());
}

const socketOf = (client: pg.PoolClient): Duplex =>
  (client as unknown as { connection: { stream: Duplex } }).connection.stream;

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
