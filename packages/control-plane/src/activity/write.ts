// Checks entries of the activity feed and turns them into a statement's parameter; transitions/effects.ts writes them.
import { ACTIVITY_ACTIONS, checkActivityMetadata, type NewActivity } from '@sandbar/contract/activity.ts';
import { v7 as uuidv7 } from 'uuid';

/** Returns one account's entries, in their order, as JSON. Throws TypeError for metadata that the contract forbids. */
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
