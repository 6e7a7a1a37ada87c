// SQL of snapshots. One that is being made, or whose delete was accepted, is absent here for everybody; only what ends
// such a change still sees it.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { SnapshotKind } from '@sandbar/contract/snapshot.ts';
import { activityParameter, activityParts } from '../activity/write.ts';
import type { App } from '../app.ts';
import { prepare } from '../db/prepared.ts';
import type { SnapshotRow } from '../db/tables.ts';
import type { Claim } from '../machines/claim.ts';
import { ClaimLost } from '../machines/refusals.ts';

const SNAPSHOT_COLUMNS = `id, account_id, host_id, machine_id, name, kind, size_gb, stored_bytes, stack, vcpus, memory_mb,
  state, error, change, created_at`;

const selectSnapshot = prepare<SnapshotRow>(
  'find_snapshot',
  `select ${SNAPSHOT_COLUMNS} from snapshots where id = $1 and account_id = $2 and change is null`,
);

/** A snapshot as its owner sees it. Throws `not_found`, the same for an absent one and another account's. */
export async function findSnapshot(app: App, accountId: string, id: string): Promise<SnapshotRow> {
  const [row] = await selectSnapshot(app.db, [id, accountId]);
  if (!row) throw snapshotNotFound();
  return row;
}

export const snapshotNotFound = (): ServiceError => new ServiceError('not_found', 'There is no such snapshot.');

/** Locks the machine, as a delete of it does that must know whether there are snapshots. */
const insertCreating = prepare<SnapshotRow>(
  'begin_snapshot',
  `with machine as materialized (
     select * from machines where id = $2 and claim_token = $3 for no key update
   )
   insert into snapshots (id, account_id, host_id, machine_id, name, kind, size_gb, stack, vcpus, memory_mb, change)
   select $1, account_id, host_id, id, $4, $5, rootfs_size_gb, stack, vcpus, memory_mb, 'creating' from machine
   returning ${SNAPSHOT_COLUMNS}`,
);

/** Writes down that a snapshot of a claimed machine is being made. Throws `ClaimLost`. */
export async function beginSnapshot(
  app: App,
  { machine, token }: Claim,
  { id, name, kind }: { id: string; name: string; kind: SnapshotKind },
): Promise<void> {
  const [row] = await insertCreating(app.db, [id, machine.id, token, name, kind]);
  if (!row) throw new ClaimLost();
}

const becomeReady = prepare<SnapshotRow>(
  'snapshot_ready',
  `with machine as materialized (
     select id from machines where id = $2 and claim_token = $3 for no key update
   ), ready as (
     update snapshots set change = null, size_gb = $4::int, stored_bytes = $5::bigint
     from machine where snapshots.id = $1 and snapshots.machine_id = machine.id and change = 'creating'
     returning snapshots.*
   ), ${activityParts({ source: 'ready', entries: '$6' })}
   select ${SNAPSHOT_COLUMNS} from ready`,
);

/** Records that the host has the snapshot, with its entry in the feed. Throws `ClaimLost`. */
export async function recordSnapshot(
  app: App,
  { machine, token }: Claim,
  { snapshot_id, size_gb, stored_bytes }: HostSnapshot,
): Promise<SnapshotRow> {
  const entries = activityParameter([
    { action: 'snapshot.created', actor: 'user', machineId: machine.id, metadata: { snapshot_id } },
  ]);
  const [row] = await becomeReady(app.db, [snapshot_id, machine.id, token, size_gb, stored_bytes, entries]);
  if (!row) throw new ClaimLost();
  return row;
}
