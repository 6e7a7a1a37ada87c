// SQL that opens and closes meters. A meter is an interval in which a resource was in use in one size and at one price.
// Its times are instants of the account's clock, which the caller has moved in the same transaction.
import { sql } from 'kysely';
import type { Tx } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { MeterChange } from '../transitions/metered.ts';
import { PRICE_IN_FORCE } from './prices.ts';

/**
 * Closes and opens the meters of resources whose size changed, at the account's present instant (`activity_at`). The
 * caller has locked the account's row.
 */
export async function switchMeters(tx: Tx, accountId: string, changes: readonly MeterChange[]): Promise<void> {
  const closing = changes.filter((change) => change.wasMetered).map((change) => change.resourceId);
  const opening = changes.flatMap(({ resourceKind, resourceId, metadata, after }) =>
    after ? [{ resource_kind: resourceKind, resource_id: resourceId, metadata, ...after }] : [],
  );
  await Promise.all([
    closing.length > 0 && closeMeters(tx, accountId, closing),
    opening.length > 0 && openMeters(tx, accountId, JSON.stringify(opening)),
  ]);
}

const closeMeters = statement((db, accountId: string, resourceIds: string[]) =>
  db
    .updateTable('meters')
    .from('accounts')
    .set({ ended_at: sql<Date>`accounts.activity_at` })
    .where('accounts.id', '=', accountId)
    .where(sql<boolean>`meters.resource_id = any(${resourceIds}::uuid[])`)
    // A literal, because PostgreSQL uses the partial index `meters_open` for a literal only.
    .where(sql<boolean>`meters.ended_at = 'infinity'`),
);

const openMeters = statement((db, accountId: string, rows: string) =>
  db
    .insertInto('meters')
    .columns([
      'account_id',
      'resource_kind',
      'resource_id',
      'vcpus',
      'memory_mb',
      'storage_gb',
      'snapshot_mb',
      'metadata',
      'price_id',
      'started_at',
    ])
    .expression(
      sql`select accounts.id, used.resource_kind, used.resource_id, used.vcpus, used.memory_mb, used.storage_gb,
          used.snapshot_mb, used.metadata, ${PRICE_IN_FORCE}, accounts.activity_at
        from accounts, jsonb_to_recordset(${rows}::jsonb) as used (resource_kind text, resource_id uuid, vcpus int,
          memory_mb int, storage_gb int, snapshot_mb int, metadata jsonb)
        where accounts.id = ${accountId}`,
    )
    // A resource that has an open meter already keeps it, and the audit reports that its size is wrong. An error here
    // would undo the change of state, again and again.
    .onConflict((conflict) => conflict.doNothing()),
);
