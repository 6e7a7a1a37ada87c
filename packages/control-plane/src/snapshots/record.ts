// Converts a snapshot's row into the JSON object that clients get.
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import type { VisibleSnapshot } from './store.ts';

export function toSnapshot(row: VisibleSnapshot): Snapshot {
  return {
    id: row.id,
    account_id: row.account_id,
    machine_id: row.machine_id,
    name: row.name,
    kind: row.kind,
    size_gb: row.size_gb,
    stored_bytes: row.stored_bytes,
    state: row.state,
    error: row.error,
    created_at: row.created_at.toISOString(),
  };
}
