// The connection to PostgreSQL. A database that is away shows itself within seconds as an error, and everything recovers
// by itself when it is back.
import { Kysely, type Transaction } from 'kysely';
import pg from 'pg';
import type { Log } from '../log.ts';
import { createDialect } from './driver.ts';
import type { Database } from './tables.ts';

export type Db = Kysely<Database>;
export type Tx = Transaction<Database>;

/** The role of the application in the database (see roles.ts). */
export const APP_ROLE = 'sandbar_app';

/** Connect 2.5 s and answer 4 s: together with queueing a caller gets its 503 within 5 s of a database that went away. */
const CONNECT_MS = 2_500;
const ANSWER_MS = 4_000;
const POOL_SIZE = 16;
/** Connections that stay open when nobody asks, so that no request waits for a new one. */
export const POOL_KEPT = 4;

const INT8_OID = 20;

/** Opens the pool as the role of the application; nothing is connected before the first query. */
export function openDatabase(url: string, log: Log): Db {
  return openPool(url, log, { role: APP_ROLE, size: POOL_SIZE, answerMs: ANSWER_MS });
}

/**
 * Runs `work` as the owner of the tables, on a connection of its own. A statement may take as long as it needs, since a
 * migration of a large table takes minutes; a database that is away is still noticed when the connection is opened.
 */
export async function asOwner<T>(url: string, log: Log, work: (owner: Db) => Promise<T>): Promise<T> {
  const owner = openPool(url, log, { role: undefined, size: 2, answerMs: undefined });
  try {
    return await work(owner);
  } finally {
    await owner.destroy();
  }
}

/** `answerMs`: how long a statement may take; undefined: as long as it needs. */
type PoolOptions = { role: string | undefined; size: number; answerMs: number | undefined };

function openPool(url: string, log: Log, { role, size, answerMs }: PoolOptions): Db {
  const types = {
    getTypeParser: (oid: number, format?: 'text' | 'binary') =>
      // Counts and byte counts stay far below 2^53.
      oid === INT8_OID ? Number : pg.types.getTypeParser(oid, format as 'text'),
  };
  const options = {
    connectionString: withOptions(url, role),
    max: size,
    min: Math.min(size, POOL_KEPT),
    // A statement is sent at once, also while the answer to an earlier one is on its way.
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
