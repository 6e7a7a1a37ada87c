// Converts a volume's row into the JSON object that clients get.
import type { Volume } from '@sandbar/contract/volume.ts';
import type { VisibleVolume } from './store.ts';

export function toVolume(row: VisibleVolume): Volume {
  // A machine that is still being created does not have the volume yet.
  const { machine_id, mount_path } = row.state === 'available' ? { machine_id: null, mount_path: null } : row;
  return {
    id: row.id,
    account_id: row.account_id,
    name: row.name,
    kind: row.kind,
    size_gb: row.size_gb,
    state: row.state,
    machine_id,
    mount_path,
    error: row.error,
    created_at: row.created_at.toISOString(),
  };
}
