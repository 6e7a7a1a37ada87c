// The header Idempotency-Key: the first request with a key creates a machine, and every later request with this key
// returns the same machine. The key's row is inserted in the transaction that inserts the machine. When the create
// fails, the key's row is deleted with the machine, and the key can be used again.
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import stringify from 'safe-stable-stringify';
import type { Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import { type AskedCreate, withDefaults } from './source.ts';

/** A key and the SHA-256 of the request that was sent with it. */
export type IdempotencyKey = { key: string; fingerprint: Buffer };

/** Returns the value of the header Idempotency-Key, or undefined. The schema has validated it already. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['idempotency-key'];
  return typeof key === 'string' ? key : undefined;
}

/**
 * Returns the normalised request whose hash is stored with a key. Two requests that mean the same become equal:
 * defaults are filled in (unless the machine has a source, which sets other defaults), and ids are in lower case.
 */
export function identityOf(asked: AskedCreate): MachineCreate {
  const { snapshot_id, root_volume_id } = asked;
  if (snapshot_id === undefined && root_volume_id === undefined) return withDefaults(asked);
  return {
    ...asked,
    ...(snapshot_id === undefined ? {} : { snapshot_id: snapshot_id.toLowerCase() }),
    ...(root_volume_id === undefined ? {} : { root_volume_id: root_volume_id.toLowerCase() }),
  };
}

/** Returns the SHA-256 of a request. The order of its fields does not matter. */
export function fingerprintOf(request: object): Buffer {
  return createHash('sha256').update(stringify(request)).digest();
}

/**
 * Returns the machine id of the first request with this key, or undefined if there was none. Throws `conflict` when
 * that request had another body.
 */
export async function findKey(
  tx: Tx,
  accountId: string,
  { key, fingerprint }: IdempotencyKey,
): Promise<string | undefined> {
  const [row] = await selectKey(tx, accountId, key);
  if (row && !row.fingerprint.equals(fingerprint)) {
    throw new ServiceError('conflict', 'This Idempotency-Key was used before with another body.');
  }
  return row?.machine_id;
}

const selectKey = statement((db, accountId: string, key: string) =>
  db
    .selectFrom('idempotency_keys')
    .select(['machine_id', 'fingerprint'])
    .where('account_id', '=', accountId)
    .where('key', '=', key),
);

/** Writes which machine was made by the first request with a key. */
export const insertKey = statement((db, accountId: string, { key, fingerprint }: IdempotencyKey, machineId: string) =>
  db.insertInto('idempotency_keys').values({ account_id: accountId, key, fingerprint, machine_id: machineId }),
);
