// The one writer of the activity feed. It runs in the transaction of the action, so an action and its entry are both
// there or neither is.
//
// An account's entries have strictly growing times, in the order in which they become visible: the account's row, which
// holds the last one, stays locked until the commit. So a reader that pages, or that asks for what is newer than the
// last entry it has, never misses one that was written late.
import { ACTIVITY_ACTIONS, checkActivityMetadata, type NewActivity } from '@sandbar/contract/activity.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { Tx } from '../db/database.ts';

/** Writes entries of one account, in their order. Throws TypeError for metadata that the contract does not allow. */
export async function writeActivity(tx: Tx, accountId: string, entries: readonly NewActivity[]): Promise<void> {
  if (entries.length === 0) return;
  for (const entry of entries) checkActivityMetadata(entry);
  const rows = entries.map((entry) => ({
    id: uuidv7(),
    category: ACTIVITY_ACTIONS[entry.action].category,
    action: entry.action,
    actor: entry.actor,
    machine_id: entry.machineId ?? null,
    metadata: entry.metadata,
  }));
  await sql`
    with clock as (
      update accounts
      set activity_at = greatest(date_trunc('milliseconds', clock_timestamp()), activity_at + interval '1 millisecond')
        + ${rows.length - 1}::int * interval '1 millisecond'
      where id = ${accountId}
      returning id as account_id, activity_at
    )
    insert into activity (account_id, created_at, id, category, action, actor, machine_id, metadata)
    select clock.account_id, clock.activity_at - (${rows.length}::int - entry.position) * interval '1 millisecond',
      entry.id, entry.category, entry.action, entry.actor, entry.machine_id, entry.metadata
    from clock, rows from (
      jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
      as (id uuid, category text, action text, actor text, machine_id text, metadata jsonb)
    ) with ordinality as entry (id, category, action, actor, machine_id, metadata, position)`.execute(tx);
}
