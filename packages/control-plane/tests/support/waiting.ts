// Sees who waits for an operation: a request that joins or waits reads the row of the operation again and again, and
// nobody else reads it that way. So a test knows that a request waits, without a pause.
import pg from 'pg';
import { until } from './postgres.ts';

const READS_OPERATION = 'select * from "operations" where "id" = $1';
const reads = new Map<string, number>();

const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
  const [statement] = args as [{ text?: string; values?: unknown[] }];
  const id = statement?.values?.[0];
  if (statement?.text === READS_OPERATION && typeof id === 'string') reads.set(id, (reads.get(id) ?? 0) + 1);
  return Reflect.apply(query, this, args);
} as pg.Client['query'];

/** Waits until somebody has waited for the operation for some rounds, counted from this call. */
export async function somebodyWaitsFor(operationId: string, rounds = 3): Promise<void> {
  const before = reads.get(operationId) ?? 0;
  await until(() => (reads.get(operationId) ?? 0) >= before + rounds, 'a request waits for the operation', 60_000);
}
