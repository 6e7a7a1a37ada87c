// How Kysely reaches PostgreSQL: a pool of pg's connections. It differs from Kysely's own driver in two points: every
// statement is prepared once on each connection, and a connection that did not answer in time is closed, because its late
// answer must not reach the next statement.
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

/** Text of pg's error for a statement that was not answered within `query_timeout`. */
const READ_TIMEOUT = 'Query read timeout';

/** A dialect for Kysely on a pool that is made with `options` when the first statement comes. */
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
    // Without a listener a connection that breaks while it is idle would end the process. The next statement opens another.
    this.#pool.on('error', this.#onIdleError);
    // The same for a connection that breaks between two statements of a transaction. The next statement fails by itself.
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

/** A connection of the pool, from its acquisition to its release. */
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
      // A transaction is over with its first error, and begins anew (transaction.ts).
      if (this.isInTransaction) throw error;
      return this.executeQuery(query);
    }
  }

  /** Sends a command without parameters. */
  async send(text: string): Promise<pg.QueryResult> {
    return this.#query({ name: undefined, text, values: [] });
  }

  /** Throws when PostgreSQL rolled back instead, because an earlier statement of the transaction had failed. */
  async commit(): Promise<void> {
    const { command } = await this.send('commit');
    if (command !== 'COMMIT') throw new Error('A failed transaction was committed, so PostgreSQL rolled it back.');
  }

  release(): void {
    this.#client.release(this.#isBroken);
  }

  // biome-ignore lint/correctness/useYield: Kysely's interface asks for it, and nothing here reads rows as a stream.
  async *streamQuery<Row>(): AsyncIterableIterator<QueryResult<Row>> {
    throw new Error('This driver does not stream rows.');
  }

  async #query({ name, text, values }: { name: string | undefined; text: string; values: unknown[] }) {
    try {
      return await this.#client.query(name === undefined ? { text, values } : { name, text, values });
    } catch (error) {
      if (error instanceof Error && error.message === READ_TIMEOUT) {
        this.#isBroken = true;
        closeSocket(this.#client);
      }
      // Statements that were sent behind one that failed only say that the transaction is aborted.
      if (isAborted(error) && this.#firstFailure !== undefined) throw this.#firstFailure;
      this.#firstFailure ??= error;
      throw error;
    }
  }
}

const isAborted = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === '25P02';

/** What follows on the connection fails at once, instead of each statement waiting for its own time-out. */
function closeSocket(client: pg.PoolClient): void {
  const { connection } = client as unknown as { connection: { stream: { destroy(): void } } };
  connection.stream.destroy();
}

/**
 * Whether a statement was prepared before a newer replica added a column to its table: it selects `*`, and PostgreSQL
 * refuses a prepared statement whose columns changed.
 */
export const isPlanOutdated = (error: unknown): boolean =>
  error instanceof Error && error.message === 'cached plan must not change result type';

/** More texts than the code has; beyond it, for lists of unusual lengths, statements are planned each time. */
const PREPARED_MAX = 1_000;
const names = new Map<string, string>();
let renamed = 0;

/** The name under which a statement's text is prepared: the same text has the same name on every connection. */
function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined) return known;
  if (names.size >= PREPARED_MAX) return undefined;
  const name = `sandbar_${renamed}_${names.size}`;
  names.set(text, name);
  return name;
}

/** Has every statement prepared anew, under another name. */
function forgetNames(): void {
  names.clear();
  renamed++;
}
