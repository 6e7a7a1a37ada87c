// The machine as clients see it, made from its row.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { MachineRow } from '../db/tables.ts';

/** RFC 3339 UTC with milliseconds, or null. */
export const timestamp = (time: Date | null): string | null => time?.toISOString() ?? null;

export function toMachine(row: MachineRow): Machine {
  return {
    id: row.id,
    account_id: row.account_id,
    name: row.name,
    state: row.state,
    vcpus: row.vcpus,
    memory_mb: row.memory_mb,
    rootfs_size_gb: row.rootfs_size_gb,
    stack: row.stack,
    private_ip: row.private_ip,
    metadata: row.metadata,
    snapshot_id: row.snapshot_id,
    // What a machine was made from went with it.
    root_volume_id: row.state === 'destroyed' ? row.keep_volume_id : row.root_volume_id,
    isolation: row.isolation,
    error: row.error,
    created_at: row.created_at.toISOString(),
    started_at: timestamp(row.started_at),
    stopped_at: timestamp(row.stopped_at),
    destroyed_at: timestamp(row.destroyed_at),
  };
}
