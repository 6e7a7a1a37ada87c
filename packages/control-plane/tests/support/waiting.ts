// Detects that a request is waiting for an operation, so that tests need no fixed pause. A waiting request reads the
// operation's row again and again, with a query that no other code uses.
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

/** Waits until a waiting request has read the operation's row `rounds` times since this call. */
export async function somebodyWaitsFor(operationId: string, rounds = 3): Promise<void> {
  const before = reads.get(operationId) ?? 0;
  await until(() => (reads.get(operationId) ?? 0) >= before + rounds, 'a request waits for the operation', 60_000);
}
