// The one writer of the activity feed. It runs in the transaction of the action, so an action and its entry are both
// there or neither is.
//
// An account's entries have strictly growing times, in the order in which they become visible: the account's row, which
// holds the last one, stays locked until the commit. So a reader that pages, or that asks for what is newer than the
// last entry it has, never misses one that was written late.
import { ACTIVITY_ACTIONS, checkActivityMetadata, type NewActivity } from '@sandbar/contract/activity.ts';
import { v7 as uuidv7 } from 'uuid';
import type { Tx } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';

type Writing = {
  /** A name in the statement with one row, which has `account_id`, or with none: then nothing is written. */
  source: string;
  /** The parameter that holds `activityParameter`. */
  entries: string;
  /** What to write as the metadata, of `entry` and `source`. */
  metadata?: string;
};

/** The two parts (`clock`, `entry_written`) by which a statement that acts writes its entries as well. */
export function activityParts({ source, entries, metadata = 'entry.metadata' }: Writing): string {
  return `
    clock as (
      update accounts
      set activity_at = greatest(date_trunc('milliseconds', clock_timestamp()), activity_at + interval '1 millisecond')
        + (jsonb_array_length(${entries}::jsonb) - 1) * interval '1 millisecond'
      from ${source} as source
      where accounts.id = source.account_id
      returning accounts.id as account_id, activity_at
    ),
    entry_written as (
      insert into activity (account_id, created_at, id, category, action, actor, machine_id, metadata)
      select clock.account_id,
        clock.activity_at - (jsonb_array_length(${entries}::jsonb) - entry.position) * interval '1 millisecond',
        entry.id, entry.category, entry.action, entry.actor, entry.machine_id, ${metadata}
      from clock, ${source} as source, rows from (
        jsonb_to_recordset(${entries}::jsonb)
        as (id uuid, category text, action text, actor text, machine_id text, metadata jsonb)
      ) with ordinality as entry (id, category, action, actor, machine_id, metadata, position)
    )`;
}

/** Entries of one account, in their order, as `activityParts` reads them. Throws TypeError as `writeActivity` does. */
export function activityParameter(entries: readonly NewActivity[]): string {
  for (const entry of entries) checkActivityMetadata(entry);
  const rows = entries.map((entry) => ({
    id: uuidv7(),
    category: ACTIVITY_ACTIONS[entry.action].category,
    action: entry.action,
    actor: entry.actor,
    machine_id: entry.machineId ?? null,
    metadata: entry.metadata,
  }));
  return JSON.stringify(rows);
}

const insertEntries = prepare(
  'write_activity',
  `with acting as (select $1::uuid as account_id), ${activityParts({ source: 'acting', entries: '$2' })}
   select 1 from clock`,
);

/** Writes entries of one account, in their order. Throws TypeError for metadata that the contract does not allow. */
export async function writeActivity(tx: Tx, accountId: string, entries: readonly NewActivity[]): Promise<void> {
  if (entries.length > 0) await insertEntries(tx, [accountId, activityParameter(entries)]);
}
