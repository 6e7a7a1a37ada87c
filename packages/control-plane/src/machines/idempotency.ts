// Idempotency-Key: the first request with a key makes the machine, every other finds it. The key's row is written in the
// transaction that writes the machine's, and goes with the machine when the create is undone: then the key is free again.
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import stringify from 'safe-stable-stringify';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { Db, Tx } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';
import type { MachineRow } from '../db/tables.ts';
import type { IdempotencyKey } from './admit.ts';
import { MACHINE_COLUMNS } from './columns.ts';

const POLL_MS = 25;

/** The header as the schema let it pass. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['idempotency-key'];
  return typeof key === 'string' ? key : undefined;
}

/** The same for two bodies that ask for the same, in whatever order their fields stand. */
export function fingerprintOf(request: object): Buffer {
  return createHash('sha256').update(stringify(request)).digest();
}

const selectKey = prepare(
  'find_idempotency_key',
  'select machine_id from idempotency_keys where account_id = $1 and key = $2',
);

/** Whether a machine was made, or is being made, with the key. */
export async function isKeyTaken(db: Db, accountId: string, key: string): Promise<boolean> {
  return (await selectKey(db, [accountId, key])).length > 0;
}

/** Gives the key of a create back that was overtaken by a delete: its request failed. */
export async function freeKey(tx: Tx, machineId: string): Promise<void> {
  await tx.deleteFrom('idempotency_keys').where('machine_id', '=', machineId).execute();
}

const selectFirst = prepare<MachineRow & { fingerprint: Buffer }>(
  'find_first_create',
  `select ${MACHINE_COLUMNS}, fingerprint
   from machines join (select machine_id, fingerprint from idempotency_keys where account_id = $1 and key = $2) as keys
     on keys.machine_id = machines.id`,
);

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
    const [found] = await selectFirst(app.db, [accountId, key]);
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
