// Converts a machine's row into the JSON object that clients get.
import type { Machine, MachineOperation } from '@sandbar/contract/machine.ts';
import type { OperationKind } from '@sandbar/contract/machine-states.ts';
import type { MachineView } from './store.ts';

/** Formats a time as RFC 3339 in UTC with milliseconds; null stays null. */
export const timestamp = (time: Date | null): string | null => time?.toISOString() ?? null;

export function toMachine(row: MachineView): Machine {
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
    root_volume_id: row.root_volume_id,
    isolation: row.isolation,
    error: row.error,
    operation: toOperation(row),
    expires_at: timestamp(row.expires_at),
    on_expiry: row.on_expiry,
    created_at: row.created_at.toISOString(),
    started_at: timestamp(row.started_at),
    stopped_at: timestamp(row.stopped_at),
    destroyed_at: timestamp(row.destroyed_at),
  };
}

function toOperation({ operation }: MachineView): MachineOperation | null {
  if (operation === null) return null;
  const { kind, created_at, attempts, last_error } = operation;
  // Clients know every kind of operation that a machine can have. The other kinds belong to volumes, snapshots and
  // expiries.
  return { kind: kind as OperationKind, since: new Date(created_at).toISOString(), attempts, last_error };
}
