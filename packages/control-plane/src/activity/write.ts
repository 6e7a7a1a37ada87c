// What an entry of the activity feed becomes before it is written; transitions/effects.ts writes it.
import { ACTIVITY_ACTIONS, checkActivityMetadata, type NewActivity } from '@sandbar/contract/activity.ts';
import { v7 as uuidv7 } from 'uuid';

/** Entries of one account, in their order, as one JSON parameter. Throws TypeError for metadata the contract forbids. */
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
