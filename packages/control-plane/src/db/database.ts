// Opens connections to PostgreSQL. Time-outs make sure that callers get an error within seconds when the database does
// not answer. New connections are opened automatically when it answers again, or when another server has become the
// primary.
import { Kysely, type Transaction } from 'kysely';
import pg from 'pg';
import type { Log } from '../log.ts';
import { createDialect } from './driver.ts';
import { failureOf } from './failures.ts';
import { readDatabaseUrl } from './servers.ts';
import type { Database } from './tables.ts';
import type { DatabaseWatch } from './watch.ts';

export type Db = Kysely<Database>;
export type Tx = Transaction<Database>;

/** The database role of the application (see roles.ts). */
export const APP_ROLE = 'sandbar_app';

/**
 * Time-outs for connecting and for one statement. With the time spent in the queue of the pool, a request fails with
 * 503 at most 5 s after the database stopped answering.
 */
export const CONNECT_MS = 2_500;
const ANSWER_MS = 4_000;
const POOL_SIZE = 16;
/**
 * An idle connection is probed after this time, and then each second. It is closed when ten probes had no answer, that
 * is 20 s after its server has vanished. Without it, the kernel begins after two hours.
 */
export const KEEP_ALIVE_MS = 10_000;
/** How many idle connections stay open, so that requests do not wait for new ones. */
export const POOL_KEPT = 4;

const INT8_OID = 20;
const INT8_ARRAY_OID = 1016;
const INT8_PARSERS: ReadonlyMap<number, (text: string) => unknown> = new Map<number, (text: string) => unknown>([
  [INT8_OID, Number],
  [INT8_ARRAY_OID, (text) => text.slice(1, -1).split(',').filter(Boolean).map(Number)],
]);

/**
 * Creates a connection pool with the role of the application. Connects only at the first query. `watch` learns about
 * the pool and about failed statements.
 */
export function openDatabase(url: string, log: Log, watch?: DatabaseWatch): Db {
  return openPool(url, log, { role: APP_ROLE, size: POOL_SIZE, answerMs: ANSWER_MS, watch });
}

/**
 * Runs `work` on a separate connection with the role that owns the tables. Its statements have no time-out, because the
 * migration of a large table can take minutes. Connecting still times out if the database does not answer. Returns the
 * result of `work`.
 */
export async function asOwner<T>(url: string, log: Log, work: (owner: Db) => Promise<T>): Promise<T> {
  const owner = openPool(url, log, { role: undefined, size: 2, answerMs: undefined, watch: undefined });
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
type PoolOptions = {
  role: string | undefined;
  size: number;
  answerMs: number | undefined;
  watch: DatabaseWatch | undefined;
};

function openPool(url: string, log: Log, { role, size, answerMs, watch }: PoolOptions): Db {
  const types = {
    getTypeParser: (oid: number, format?: 'text' | 'binary') =>
      // Read int8 as a number: our counts, byte counts and amounts of money are far below 2^53.
      INT8_PARSERS.get(oid) ?? pg.types.getTypeParser(oid, format as 'text'),
  };
  const { servers, config } = readDatabaseUrl(url);
  const options = {
    ...config,
    ...startOptions(config.options, role),
    max: size,
    min: Math.min(size, POOL_KEPT),
    // Pipelining: send a statement without waiting for the answer to the previous one.
    pipeline: true,
    connectionTimeoutMillis: CONNECT_MS,
    ...(answerMs === undefined ? {} : { query_timeout: answerMs }),
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    application_name: 'sandbar-control-plane',
    types: types as unknown as pg.CustomTypesConfig,
  };
  const settings = {
    servers,
    config: options,
    role,
    onIdleError: (error: Error) => log.debug({ err: error }, 'an idle database connection broke'),
    onMove: (server: string) => log.warn({ server }, 'another database server has become the primary'),
  };
  const dialect = createDialect(settings, {
    opened: (pool) => watch?.opened(() => ({ ...pool.size(), most: size })),
    failed: (error) => watch?.failed(failureOf(error)),
  });
  return new Kysely<Database>({ dialect });
}

/** Appends our options to those of the URL. PostgreSQL uses the last value of an option, so ours win. */
function startOptions(given: string | undefined, role: string | undefined): { options?: string } {
  // The server cancels a statement shortly after the client has given it up.
  const ours = role === undefined ? [] : [`-c statement_timeout=${ANSWER_MS + 500}`, `-c role=${role}`];
  const options = [given, ...ours].filter(Boolean).join(' ');
  return options === '' ? {} : { options };
}
