// The columns of a machine's row, for prepared statements.

/** By name: a column that a newer replica adds must not break what is prepared. */
export const MACHINE_COLUMNS = `id, account_id, host_id, name, state, desired, desired_by, generation, vcpus, memory_mb,
  rootfs_size_gb, stack, private_ip, metadata, isolation, error, created_at, started_at, stopped_at, destroyed_at,
  claim_token, claim_expires_at, keep_volume_id, snapshot_id, root_volume_id, restoring_snapshot_id, snapshots_deleted`;
