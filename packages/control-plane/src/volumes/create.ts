// Creates a data volume at the request of an account. One transaction charges the quota and inserts the volume's row,
// which is hidden from clients. Then the operation creates the disk on a host and makes the volume visible.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { VolumeCreate } from '@sandbar/contract/volume.ts';
import { v7 as uuidv7 } from 'uuid';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { checkMayRun } from '../billing/check.ts';
import type { HostRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { rankHosts } from '../hosts/placement.ts';
import { capacityOf, offeredDisk, type Room } from '../hosts/room.ts';
import { listHosts } from '../hosts/store.ts';
import { fleetIsFull } from '../machines/refusals.ts';
import { admitsAccount, emulatedOnly } from '../machines/tenancy.ts';
import { performForRequest } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { checkQuota } from '../quotas/check.ts';
import { volumeRoom, volumeUse } from '../transitions/amounts.ts';
import { transition } from '../transitions/transition.ts';
import { findVolume, type VisibleVolume } from './store.ts';

/**
 * Creates an empty data volume. Throws `validation_error`, `forbidden`, `insufficient_balance`, `quota_exceeded`,
 * `fleet_capacity`, `host_unavailable` or the host's refusal. After an error nothing of the volume remains, or the
 * reconciler soon removes it.
 */
export async function createVolume(
  app: App,
  accountId: string,
  { name = '', size_gb }: VolumeCreate,
): Promise<VisibleVolume> {
  const deadline = performance.now() + app.config.timing.operationWaitMs;
  const id = uuidv7();
  const claimed = await inTransaction(app.db, async (tx) => {
    const [account, hosts] = await Promise.all([lockAccount(tx, accountId), listHosts(tx)]);
    checkVolumeSize(app, hosts, size_gb);
    const admitting = hosts.filter((host) => admitsAccount(app, host, account));
    if (hosts.length > 0 && admitting.length === 0) throw emulatedOnly();
    checkMayRun(account);
    const row = { id, account_id: accountId, name, kind: 'data', size_gb, state: 'creating' } as const;
    checkQuota(account, volumeUse(row));
    const host_id = chooseHost(app, admitting, volumeRoom(row)).id;
    const scope = { accountId, hostId: host_id, actor: 'user' } as const;
    await transition(app, tx, scope, (steps) => steps.insertVolume({ ...row, host_id }));
    return insertClaimed(app, tx, {
      ...{ account_id: accountId, host_id, machine_id: null, volume_id: id, snapshot_id: null },
      ...{ kind: 'create_volume', args: '{}', actor: 'user' },
    } as const);
  });
  await performForRequest(app, claimed, undefined, deadline);
  return findVolume(app, accountId, id);
}

/**
 * Returns the host for the new volume. Throws `host_unavailable` when no host is connected, and `fleet_capacity` when
 * no connected host has room for it.
 */
function chooseHost(app: App, hosts: readonly HostRow[], room: Room): HostRow {
  const connected = new Set(app.hosts.connectedIds());
  const reachable = hosts.filter((host) => connected.has(host.id));
  if (reachable.length === 0) throw new HostUnavailable(false);
  const [best] = rankHosts(reachable, { room, stack: undefined }, app.config.overcommit);
  if (best) return best;
  throw fleetIsFull(room);
}

/** Throws `validation_error` for a volume that is larger than what the disk of the largest host offers. */
function checkVolumeSize({ config }: App, hosts: readonly HostRow[], sizeGb: number): void {
  // After an update of the service, no host's disk size is known until its agent reports it. Then skip this check.
  if (hosts.every((host) => host.disk_mb === 0)) return;
  const most = Math.max(...hosts.map((host) => capacityOf(host, config.overcommit).diskGb));
  if (sizeGb <= most) return;
  throw new ServiceError('validation_error', `size_gb must be at most ${most}, ${offeredDisk(config.overcommit)}.`);
}
