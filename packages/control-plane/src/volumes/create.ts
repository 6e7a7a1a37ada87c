// Creates a data volume at the request of an account. One transaction charges the quota and inserts the volume's row,
// which is hidden from clients. Then the operation creates the disk on a host and makes the volume visible.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { VolumeCreate } from '@sandbar/contract/volume.ts';
import { v7 as uuidv7 } from 'uuid';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { HostRow } from '../db/tables.ts';
import { inTransaction } from '../db/transaction.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { listHosts } from '../hosts/store.ts';
import { admitsAccount, emulatedOnly } from '../machines/tenancy.ts';
import { performForRequest } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { checkQuota } from '../quotas/check.ts';
import { volumeUse } from '../transitions/amounts.ts';
import { transition } from '../transitions/transition.ts';
import { checkBalance } from '../wallet/check.ts';
import { rankHostsForVolume } from './placement.ts';
import { findVolume, type VisibleVolume } from './store.ts';

/**
 * Creates an empty data volume. Throws `forbidden`, `insufficient_balance`, `quota_exceeded`, `fleet_capacity`,
 * `host_unavailable` or the host's refusal. After an error nothing of the volume remains, or the reconciler removes it
 * soon.
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
    const admitting = hosts.filter((host) => admitsAccount(app, host, account));
    if (hosts.length > 0 && admitting.length === 0) throw emulatedOnly();
    await checkBalance(tx, account);
    const row = { id, account_id: accountId, name, kind: 'data', size_gb, state: 'creating' } as const;
    checkQuota(account, volumeUse(row));
    const host_id = chooseHost(app, admitting).id;
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
 * no connected host accepts new volumes.
 */
function chooseHost(app: App, hosts: readonly HostRow[]): HostRow {
  const connected = new Set(app.hosts.connectedIds());
  const reachable = hosts.filter((host) => connected.has(host.id));
  if (reachable.length === 0) throw new HostUnavailable(false);
  const [best] = rankHostsForVolume(reachable, app.config.memoryOvercommit);
  if (best) return best;
  throw new ServiceError(
    'fleet_capacity',
    'No host takes new volumes now. This is a limit of the fleet, not a quota of the account: retry later.',
    { retryAfterSec: 10 },
  );
}
