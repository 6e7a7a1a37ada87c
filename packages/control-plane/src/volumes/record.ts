// The volume as clients see it, made from its row.
import type { Volume } from '@sandbar/contract/volume.ts';
import type { VolumeRow } from '../db/tables.ts';

/** One that is being attached is available still: where it goes is shown when it is there. */
export function toVolume(row: VolumeRow): Volume {
  const isThere = row.state !== 'available';
  return {
    id: row.id,
    account_id: row.account_id,
    name: row.name,
    kind: row.kind,
    size_gb: row.size_gb,
    state: row.state,
    machine_id: isThere ? row.machine_id : null,
    mount_path: isThere ? row.mount_path : null,
    error: row.error,
    created_at: row.created_at.toISOString(),
  };
}
