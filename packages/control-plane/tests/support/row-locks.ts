// Holds the lock of a row, so that a test can change something while the service waits for the row.
import pg from 'pg';
import { until } from './postgres.ts';

export type HeldRow = {
  /** Waits until `count` other transactions wait for a lock. */
  isWaitedFor(count: number): Promise<void>;
  /** Ends the connections of the transactions that wait for a lock, and returns their number. */
  endWaiting(): Promise<number>;
  /**
   * Also locks the rows of an account in another table, and returns their number. Throws if another transaction has
   * locked one of them.
   */
  alsoLocks(table: 'idempotency_keys', accountId: string): Promise<number>;
  release(): Promise<void>;
};

/** Locks a row by its id until `release`. */
export async function holdRow(
  databaseUrl: string,
  table: 'machines' | 'volumes' | 'snapshots' | 'accounts',
  id: string,
): Promise<HeldRow> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client.query('begin');
  await client.query(`select from ${table} where id = $1 for update`, [id]);
  return {
    isWaitedFor: (count) =>
      until(
        async () => {
          const { rowCount } = await client.query(
            `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
          );
          return (rowCount ?? 0) >= count;
        },
        `${count} transactions wait`,
        60_000,
      ),
    endWaiting: async () => {
      const { rowCount } = await client.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where wait_event_type = 'Lock' and datname = current_database()`,
      );
      return rowCount ?? 0;
    },
    alsoLocks: async (table, accountId) =>
      (await client.query(`select from ${table} where account_id = $1 for update nowait`, [accountId])).rowCount ?? 0,
    release: async () => {
      await client.query('commit');
      await client.end();
    },
  };
}
