// Idempotency-Key: the first request with a key makes the machine, and every other one finds it. The key's row is written
// in the transaction that writes the machine's. It goes with the machine when the create is taken back: then the key is
// free again.
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import stringify from 'safe-stable-stringify';
import type { Tx } from '../db/database.ts';
import { type AskedCreate, withDefaults } from './source.ts';

/** What an Idempotency-Key stands for: the key and the SHA-256 of the request it came with. */
export type IdempotencyKey = { key: string; fingerprint: Buffer };

/** The header as the schema let it pass. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['idempotency-key'];
  return typeof key === 'string' ? key : undefined;
}

/** The request that a key stands for: without a source, with the defaults that hold for everybody. */
export function identityOf(asked: AskedCreate): MachineCreate {
  const { snapshot_id, root_volume_id } = asked;
  if (snapshot_id === undefined && root_volume_id === undefined) return withDefaults(asked);
  return {
    ...asked,
    ...(snapshot_id === undefined ? {} : { snapshot_id: snapshot_id.toLowerCase() }),
    ...(root_volume_id === undefined ? {} : { root_volume_id: root_volume_id.toLowerCase() }),
  };
}

/** The same for two bodies that ask for the same, in whatever order their fields stand. */
export function fingerprintOf(request: object): Buffer {
  return createHash('sha256').update(stringify(request)).digest();
}

/** The id of the machine of the first request with this key, if there was one. Throws `conflict` for another body. */
export async function findKey(
  tx: Tx,
  accountId: string,
  { key, fingerprint }: IdempotencyKey,
): Promise<string | undefined> {
  const row = await tx
    .selectFrom('idempotency_keys')
    .select(['machine_id', 'fingerprint'])
    .where('account_id', '=', accountId)
    .where('key', '=', key)
    .executeTakeFirst();
  if (row && !row.fingerprint.equals(fingerprint)) {
    throw new ServiceError('conflict', 'This Idempotency-Key was used before with another body.');
  }
  return row?.machine_id;
}
