// Idempotency-Key: the first request with a key makes the machine, every other finds it. The key's row is written in the
// transaction that writes the machine's, and goes with the machine when the create is undone: then the key is free again.
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import stringify from 'safe-stable-stringify';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import type { CreateRequest, IdempotencyKey } from './admit.ts';

const POLL_MS = 25;

/** The header as the schema let it pass. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['idempotency-key'];
  return typeof key === 'string' ? key : undefined;
}

/** The same for two bodies that ask for the same, in whatever order their fields stand. */
export function fingerprintOf(request: CreateRequest): Buffer {
  return createHash('sha256').update(stringify(request)).digest();
}

/** Takes the key for a machine that is about to be inserted; false when it is taken. Waits for whoever is taking it. */
export async function takeKey(tx: Tx, accountId: string, key: IdempotencyKey, machineId: string): Promise<boolean> {
  const result = await tx
    .insertInto('idempotency_keys')
    .values({ account_id: accountId, ...key, machine_id: machineId })
    .onConflict((conflict) => conflict.columns(['account_id', 'key']).doNothing())
    .executeTakeFirst();
  return result.numInsertedOrUpdatedRows === 1n;
}

/** Gives the key of a create back that was overtaken by a delete: its request failed. */
export async function freeKey(tx: Tx, machineId: string): Promise<void> {
  await tx.deleteFrom('idempotency_keys').where('machine_id', '=', machineId).execute();
}

/**
 * The machine of the first request with this key, once that request is done with it, whoever finishes it. Undefined when
 * the key is free, or became free because the first attempt failed. Throws `conflict` for another body, or when the first
 * one takes too long.
 */
export async function findFirst(
  app: App,
  accountId: string,
  { key, fingerprint }: IdempotencyKey,
): Promise<MachineRow | undefined> {
  const deadline = performance.now() + app.config.timing.claimWaitMs;
  for (let pauseMs = POLL_MS; ; pauseMs = Math.min(pauseMs * 2, 250)) {
    const found = await app.db
      .selectFrom('idempotency_keys')
      .innerJoin('machines', 'machines.id', 'idempotency_keys.machine_id')
      .selectAll('machines')
      .select('fingerprint')
      .where('idempotency_keys.account_id', '=', accountId)
      .where('key', '=', key)
      .executeTakeFirst();
    if (!found) return undefined;
    if (!found.fingerprint.equals(fingerprint)) {
      throw new ServiceError('conflict', 'This Idempotency-Key was used before with another body.');
    }
    if (!isBeingCreated(found)) return found;
    if (performance.now() > deadline || app.closing.aborted) {
      throw new ServiceError('conflict', 'The first request with this Idempotency-Key is still running. Retry later.', {
        retryAfterSec: 2,
      });
    }
    await sleep(pauseMs, app.closing);
  }
}

const isBeingCreated = ({ state, started_at, desired }: MachineRow): boolean =>
  (state === 'provisioning' && started_at === null) || desired === 'discarded';
