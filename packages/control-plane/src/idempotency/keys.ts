// The header Idempotency-Key: the first request with a key creates a machine, a volume or a snapshot, and every later
// request with this key is answered with the same object. The key's row is inserted in the transaction that inserts the
// object's row. When the create fails, the key's row is deleted in the transaction that deletes the object's row, and
// the key can be used again. When a client deletes the object, the key's row stays, so that a late retry of the create
// does not create a second object.
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import stringify from 'safe-stable-stringify';
import type { Db, Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { OperationRow } from '../db/tables.ts';

/** A key and the SHA-256 of the request that was sent with it. */
export type IdempotencyKey = { key: string; fingerprint: Buffer };

/** For each kind of object that has keys: the column with its id, and the operation that creates it. */
const OBJECTS = {
  machine: { column: 'machine_id', operation: 'create' },
  volume: { column: 'volume_id', operation: 'create_volume' },
  snapshot: { column: 'snapshot_id', operation: 'snapshot' },
} as const;
/** A kind of object that is created once for a key. */
export type KeyedKind = keyof typeof OBJECTS;
const KEYED_KINDS: readonly KeyedKind[] = ['machine', 'volume', 'snapshot'];

/** SQL condition: the operation creates the object of the key. */
const createsObject = sql<boolean>`(${sql.join(
  KEYED_KINDS.map((kind) => {
    const { column, operation } = OBJECTS[kind];
    return sql`(operations.kind = ${sql.lit(operation)} and operations.${sql.id(column)} = keys.${sql.id(column)})`;
  }),
  sql` or `,
)})`;

/** Returns the value of the header Idempotency-Key, or undefined. The schema has validated it already. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['idempotency-key'];
  return typeof key === 'string' ? key : undefined;
}

/**
 * Returns a key with the SHA-256 of its request, or undefined when the request has no key. `request`: the normalised
 * request, so that requests that mean the same are equal. It must differ from every request for an object of another
 * kind. The order of its fields does not matter.
 */
export function idempotencyKeyOf(key: string | undefined, request: object): IdempotencyKey | undefined {
  if (key === undefined) return undefined;
  return { key, fingerprint: createHash('sha256').update(stringify(request)).digest() };
}

/**
 * What the first request with a key made: the id of its object, and the id of the operation that is still creating the
 * object. `operationId` is null when the object was created; a client may have deleted it since.
 */
export type First = { id: string; operationId: string | null };

/**
 * Returns what the first request with this key made, or undefined if there was none. To insert the key afterwards, the
 * caller must have locked the account's row. Throws `conflict` when the first request was another request.
 */
export async function findKey(
  db: Db | Tx,
  accountId: string,
  { key, fingerprint }: IdempotencyKey,
): Promise<First | undefined> {
  const [row] = await selectKey(db, accountId, key);
  if (row && !row.fingerprint.equals(fingerprint)) {
    throw new ServiceError('conflict', 'This Idempotency-Key was used before with another body or path.');
  }
  return row && { id: row.id, operationId: row.operation_id };
}

/**
 * One statement reads the key and the operation. If the create failed between two statements, the first would find the
 * key, and the second would find no operation. This would look like an object that was created and then deleted.
 */
const selectKey = statement((db, accountId: string, key: string) =>
  db
    .selectFrom('idempotency_keys as keys')
    .select((is) => [
      'fingerprint',
      is.fn.coalesce('machine_id', 'volume_id', 'snapshot_id').$castTo<string>().as('id'),
      is
        .selectFrom('operations')
        .select('operations.id')
        .where('finished_at', 'is', null)
        .where(createsObject)
        .as('operation_id'),
    ])
    .where('keys.account_id', '=', accountId)
    .where('key', '=', key),
);

/** Writes which object the first request with a key creates. */
export async function insertKey(
  tx: Tx,
  accountId: string,
  key: IdempotencyKey,
  { kind, id }: { kind: KeyedKind; id: string },
): Promise<void> {
  await insertRow(tx, accountId, key, {
    machine_id: null,
    volume_id: null,
    snapshot_id: null,
    [OBJECTS[kind].column]: id,
  });
}

type Ids = { machine_id: string | null; volume_id: string | null; snapshot_id: string | null };

const insertRow = statement((db, accountId: string, { key, fingerprint }: IdempotencyKey, ids: Ids) =>
  db.insertInto('idempotency_keys').values({
    account_id: accountId,
    key,
    fingerprint,
    machine_id: ids.machine_id,
    volume_id: ids.volume_id,
    snapshot_id: ids.snapshot_id,
  }),
);

/** Frees the key of the request that began a failed operation. Does nothing if the operation creates no object. */
export async function freeKeyOf(tx: Tx, operation: OperationRow): Promise<void> {
  const kind = KEYED_KINDS.find((each) => OBJECTS[each].operation === operation.kind);
  if (!kind) return;
  const { column } = OBJECTS[kind];
  await tx.deleteFrom('idempotency_keys').where(column, '=', operation[column]).execute();
}

/** The answer to a replay when the object has been deleted since the first request. */
export const goneSince = (kind: Exclude<KeyedKind, 'machine'>): ServiceError =>
  new ServiceError('not_found', `The ${kind} that was created with this Idempotency-Key is deleted.`);
