// Statements of the hot path: written once as text and prepared on each connection, so that neither the query builder nor
// PostgreSQL's planner works on every request. Everything else is built with Kysely.
import { CompiledQuery } from 'kysely';
import type pg from 'pg';
import type { Db, Tx } from './database.ts';

type Values = readonly unknown[];

/** Runs the statement with the values of $1, $2, … */
export type Prepared<Row> = ((db: Db | Tx, values: Values) => Promise<Row[]>) & { readonly text: string };

const names = new Map<string, string>();
/** The pool behind a database: from outside a transaction a statement goes there without Kysely in between. */
const pools = new WeakMap<Db, pg.Pool>();

/** Says which pool a database is made of. */
export function setPool(db: Db, pool: pg.Pool): void {
  pools.set(db, pool);
}

/**
 * Ends all connections of a database. Kysely ends those of a pool that it has used itself, and a pool that only prepared
 * statements went to would keep the process from ending.
 */
export async function closeDatabase(db: Db): Promise<void> {
  await db.destroy();
  const pool = pools.get(db);
  if (pool && !pool.ending) await pool.end();
}

/** A statement by its name (unique) and text. */
export function prepare<Row>(name: string, text: string): Prepared<Row> {
  names.set(text, name);
  const run = async (db: Db | Tx, values: Values): Promise<Row[]> => {
    const pool = pools.get(db);
    if (!pool) return (await db.executeQuery<Row>(CompiledQuery.raw(text, [...values]))).rows;
    return onConnection(pool, async (client) => (await client.query(text, [...values])).rows as Row[]);
  };
  return Object.assign(run, { text });
}

/** The name under which a text is prepared; undefined for all others. */
export const preparedName = (text: unknown): string | undefined =>
  typeof text === 'string' ? names.get(text) : undefined;

/**
 * Two statements as one transaction that costs one exchange with the database: they are sent together with its begin and
 * its commit, so the second must itself say under which condition it acts. It sees what was committed while the first
 * waited for a lock, as a part of the first would not.
 */
export function transact<A, B>(
  db: Db,
  first: [Prepared<A>, Values],
  second: [Prepared<B>, Values],
): Promise<[A[], B[]]> {
  const pool = pools.get(db);
  if (!pool) throw new Error('a transaction needs a database with a pool');
  return onConnection(pool, async (client) => {
    const answers = await Promise.allSettled([
      client.query('begin'),
      client.query(first[0].text, [...first[1]]),
      client.query(second[0].text, [...second[1]]),
      // After an error it rolls back.
      client.query('commit'),
    ]);
    const failed = answers.find((answer) => answer.status === 'rejected');
    if (failed) throw failed.reason;
    const rows = answers.map((answer) => (answer.status === 'fulfilled' ? answer.value.rows : []));
    return [rows[1] as A[], rows[2] as B[]];
  });
}

/** Opens `count` connections, so that no request waits for one. Throws when the database is away. */
export async function openConnections(db: Db, count: number): Promise<void> {
  const pool = pools.get(db);
  if (!pool) return;
  const opened = await Promise.allSettled(Array.from({ length: count }, () => pool.connect()));
  for (const connection of opened) if (connection.status === 'fulfilled') connection.value.release();
  for (const connection of opened) if (connection.status === 'rejected') throw connection.reason;
}

async function onConnection<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  try {
    return await work(client);
  } finally {
    // The pool throws a connection away that broke meanwhile.
    client.release();
  }
}
