// Opens connections to PostgreSQL. Time-outs make sure that callers get an error within seconds when the database does
// not answer. New connections are opened automatically when it answers again.
import { Kysely, type Transaction } from 'kysely';
import pg from 'pg';
import type { Log } from '../log.ts';
import { createDialect } from './driver.ts';
import type { Database } from './tables.ts';

export type Db = Kysely<Database>;
export type Tx = Transaction<Database>;

/** The database role of the application (see roles.ts). */
export const APP_ROLE = 'sandbar_app';

/**
 * Time-outs for connecting and for one statement. With the time spent in the queue of the pool, a request fails with
 * 503 at most 5 s after the database stopped answering.
 */
const CONNECT_MS = 2_500;
const ANSWER_MS = 4_000;
const POOL_SIZE = 16;
/** How many idle connections stay open, so that requests do not wait for new ones. */
export const POOL_KEPT = 4;

const INT8_OID = 20;
const INT8_ARRAY_OID = 1016;
const INT8_PARSERS: ReadonlyMap<number, (text: string) => unknown> = new Map<number, (text: string) => unknown>([
  [INT8_OID, Number],
  [INT8_ARRAY_OID, (text) => text.slice(1, -1).split(',').filter(Boolean).map(Number)],
]);

/** Creates a connection pool with the role of the application. Connects only at the first query. */
export function openDatabase(url: string, log: Log): Db {
  return openPool(url, log, { role: APP_ROLE, size: POOL_SIZE, answerMs: ANSWER_MS });
}

/**
 * Runs `work` on a separate connection with the role that owns the tables. Its statements have no time-out, because the
 * migration of a large table can take minutes. Connecting still times out if the database does not answer. Returns the
 * result of `work`.
 */
export async function asOwner<T>(url: string, log: Log, work: (owner: Db) => Promise<T>): Promise<T> {
  const owner = openPool(url, log, { role: undefined, size: 2, answerMs: undefined });
  try {
    return await work(owner);
  } finally {
    await owner.destroy();
  }
}

/**
 * `role`: the role to switch to; undefined: the role of the URL. `size`: the largest number of connections. `answerMs`:
 * time-out of a statement in milliseconds; undefined: none.
 */
type PoolOptions = { role: string | undefined; size: number; answerMs: number | undefined };

function openPool(url: string, log: Log, { role, size, answerMs }: PoolOptions): Db {
  const types = {
    getTypeParser: (oid: number, format?: 'text' | 'binary') =>
      // Read int8 as a number: our counts, byte counts and amounts of money are far below 2^53.
      INT8_PARSERS.get(oid) ?? pg.types.getTypeParser(oid, format as 'text'),
  };
  const options = {
    connectionString: withOptions(url, role),
    max: size,
    min: Math.min(size, POOL_KEPT),
    // Pipelining: send a statement without waiting for the answer to the previous one.
    pipeline: true,
    connectionTimeoutMillis: CONNECT_MS,
    ...(answerMs === undefined ? {} : { query_timeout: answerMs }),
    keepAlive: true,
    application_name: 'sandbar-control-plane',
    types: types as unknown as pg.CustomTypesConfig,
  };
  const dialect = createDialect(options, (error) => log.debug({ err: error }, 'an idle database connection broke'));
  return new Kysely<Database>({ dialect });
}

/** Appends our options to those of the URL. PostgreSQL uses the last value of an option, so ours win. */
function withOptions(url: string, role: string | undefined): string {
  const parsed = new URL(url);
  // The server cancels a statement shortly after the client has given it up.
  const ours = role === undefined ? [] : [`-c statement_timeout=${ANSWER_MS + 500}`, `-c role=${role}`];
  const options = [parsed.searchParams.get('options'), ...ours].filter(Boolean).join(' ');
  if (options !== '') parsed.searchParams.set('options', options);
  return parsed.href;
}

/** SQLSTATE codes of a temporary failure: connection exceptions, server shutdown, too many connections. */
const AWAY_SQLSTATE = /^(08...|57P0[1235]|53300)$/;
const AWAY_ERRNO = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN']);
const AWAY_MESSAGE = /^(Query read timeout|timeout exceeded when trying|Connection terminated|Client has encountered)/;

/** Returns true if the error means that the database does not answer. Other errors are bugs. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isDatabaseAway);
  const code = 'code' in error ? String(error.code) : '';
  return AWAY_SQLSTATE.test(code) || AWAY_ERRNO.has(code) || AWAY_MESSAGE.test(error.message);
}

const DISK_FULL_SQLSTATE = '53100';

/** Returns true if the database failed because its disk is full. */
export function isDatabaseFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === DISK_FULL_SQLSTATE;
}

/** Returns true if the error is a violation of the named unique constraint or index. */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  return (
    error instanceof Error &&
    'code' in error &&
    error.code === '23505' &&
    'constraint' in error &&
    error.constraint === constraint
  );
}
