// The connection pool. Its one promise: a database that is away shows itself within seconds as an error, and a connection
// that did not answer in time is thrown away, so that everything recovers by itself.
import { Kysely, PostgresDialect, type Transaction } from 'kysely';
import pg from 'pg';
import type { Log } from '../log.ts';
import { closeDatabase, preparedName, setPool } from './prepared.ts';
import { APP_ROLE } from './roles.ts';
import type { Database } from './tables.ts';

export type Db = Kysely<Database>;
export type Tx = Transaction<Database>;

/** Connect 2.5 s and answer 4 s: together with queueing a caller gets its 503 within 5 s of a database that went away. */
const CONNECT_MS = 2_500;
const ANSWER_MS = 4_000;
const POOL_SIZE = 16;
/** Kept open however long nobody asks: a request alone would wait for a connection, and for every plan anew. */
export const POOL_KEPT = 4;

const READ_TIMEOUT = 'Query read timeout';

/** After a query timed out its answer may still come; the connection must not serve the next query. */
class ImpatientClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    // The pool listens to idle connections only; one that breaks between two statements of a transaction has nobody, and
    // an error event without a listener ends the process. The next statement fails by itself.
    this.on('error', () => undefined);
  }

  // biome-ignore lint/suspicious/noExplicitAny: pg overloads `query` eight times; this only looks at the promise.
  override query(...args: any[]): any {
    const [text, values] = args;
    const name = preparedName(text);
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    const result = name === undefined ? (super.query as any)(...args) : super.query({ name, text, values });
    if (result instanceof Promise) {
      result.catch((error: unknown) => {
        if (error instanceof Error && error.message === READ_TIMEOUT) this.connection.stream.destroy();
      });
    }
    return result;
  }
}

const INT8_OID = 20;

/** Opens the pool as the role of the application; nothing is connected before the first query. */
export function openDatabase(url: string, log: Log): Db {
  return openPool(url, log, { role: APP_ROLE, size: POOL_SIZE });
}

/** Runs `work` as the owner of the tables, on a connection of its own. */
export async function asOwner<T>(url: string, log: Log, work: (owner: Db) => Promise<T>): Promise<T> {
  const owner = openPool(url, log, { role: undefined, size: 2 });
  try {
    return await work(owner);
  } finally {
    await closeDatabase(owner);
  }
}

function openPool(url: string, log: Log, { role, size }: { role: string | undefined; size: number }): Db {
  const types = {
    getTypeParser: (oid: number, format?: 'text' | 'binary') =>
      // Counts and byte counts stay far below 2^53.
      oid === INT8_OID ? Number : pg.types.getTypeParser(oid, format as 'text'),
  };
  const pool = new pg.Pool({
    connectionString: withOptions(url, role),
    Client: ImpatientClient,
    max: size,
    min: Math.min(size, POOL_KEPT),
    // What is sent before the answer to what was sent earlier is not held back; only `transact` does that.
    pipeline: true,
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: ANSWER_MS,
    keepAlive: true,
    application_name: 'sandbar-control-plane',
    types: types as unknown as pg.CustomTypesConfig,
  });
  // An idle connection that breaks is replaced by the next query; without a listener it would end the process.
  pool.on('error', (error) => log.debug({ err: error }, 'an idle database connection broke'));
  const db = new Kysely<Database>({ dialect: new PostgresDialect({ pool }) });
  setPool(db, pool);
  return db;
}

/** The URL's own options stay; ours come behind them and so win. */
function withOptions(url: string, role: string | undefined): string {
  const parsed = new URL(url);
  // A statement that nobody waits for any more must not go on.
  const ours = role === undefined ? [] : [`-c statement_timeout=${ANSWER_MS + 500}`, `-c role=${role}`];
  const options = [parsed.searchParams.get('options'), ...ours].filter(Boolean).join(' ');
  if (options !== '') parsed.searchParams.set('options', options);
  return parsed.href;
}

/** SQLSTATE classes and codes that mean "not now": connection exceptions, shutdown, too many connections. */
const AWAY_SQLSTATE = /^(08...|57P0[1235]|53300)$/;
const AWAY_ERRNO = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN']);
const AWAY_MESSAGE = /^(Query read timeout|timeout exceeded when trying|Connection terminated|Client has encountered)/;

/** Whether an error of a query says that the database is away, as opposed to a bug. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isDatabaseAway);
  const code = 'code' in error ? String(error.code) : '';
  return AWAY_SQLSTATE.test(code) || AWAY_ERRNO.has(code) || AWAY_MESSAGE.test(error.message);
}

const DISK_FULL_SQLSTATE = '53100';

/** Whether the database refused for want of disk space. */
export function isDatabaseFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === DISK_FULL_SQLSTATE;
}

/** Whether an error is a unique violation (of the named constraint). */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  return (
    error instanceof Error &&
    'code' in error &&
    error.code === '23505' &&
    'constraint' in error &&
    error.constraint === constraint
  );
}
