// Creates a data volume at the request of an account. One transaction charges the quota and inserts the volume's row,
// which is hidden from clients. Then the operation creates the disk on a host and makes the volume visible.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { VolumeCreate } from '@sandbar/contract/volume.ts';
import { v7 as uuidv7 } from 'uuid';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { checkMayRun } from '../billing/check.ts';
import type { Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { chooseReachableHost } from '../hosts/choose-host.ts';
import type { HostFacts } from '../hosts/host-table.ts';
import { capacityOf, offeredDisk, type Room } from '../hosts/room.ts';
import { byTable, type KnownHosts, refusedByTable, throwHostIsFull, withHosts } from '../hosts/with-hosts.ts';
import { findKey, goneSince, type IdempotencyKey, idempotencyKeyOf, insertKey } from '../idempotency/keys.ts';
import { type Created, createOnce } from '../idempotency/once.ts';
import { fleetIsFull } from '../machines/refusals.ts';
import { admitsAccount, emulatedOnly } from '../machines/tenancy.ts';
import { performForRequest } from '../operations/request.ts';
import { type Claimed, insertClaimed } from '../operations/store.ts';
import { checkQuota } from '../quotas/check.ts';
import { volumeRoom, volumeUse } from '../transitions/amounts.ts';
import { transition } from '../transitions/transition.ts';
import { findVolume, getVisibleVolume, type VisibleVolume } from './store.ts';

/**
 * Creates an empty data volume. Returns the volume of an earlier request instead if that request had the same
 * idempotency key. Throws `conflict` if that was another request, and `not_found` if its volume is deleted.
 *
 * Throws `validation_error`, `forbidden`, `insufficient_balance`, `quota_exceeded`,
 * `fleet_capacity`, `host_unavailable` or the host's refusal. After an error nothing of the volume remains, or the
 * reconciler soon removes it.
 */
export async function createVolume(
  app: App,
  accountId: string,
  { name = '', size_gb }: VolumeCreate,
  key?: string,
): Promise<Created<VisibleVolume>> {
  const idempotencyKey = idempotencyKeyOf(key, { kind: 'volume', name, size_gb });
  return createOnce(app, async (deadline) => {
    const request = { accountId, name, size_gb, idempotencyKey };
    const admitted = await withHosts(app, (known) =>
      inTransaction(app.db, (tx) => admitVolume(app, tx, request, known)),
    );
    if (admitted.kind === 'under way') return { underWay: admitted.operationId };
    if (admitted.kind === 'replay') {
      const row = await getVisibleVolume(app.db, accountId, admitted.id);
      if (!row) throw goneSince('volume');
      return { row, isReplay: true };
    }
    await performForRequest(app, admitted.claimed, undefined, deadline);
    return { row: await findVolume(app, accountId, admitted.id), isReplay: false };
  });
}

type Request = { accountId: string; name: string; size_gb: number; idempotencyKey: IdempotencyKey | undefined };

/**
 * The result: a new volume with its operation (`new`), the volume of an earlier request with the same key (`replay`),
 * or the unfinished operation of that request (`under way`).
 */
type Admitted =
  | { kind: 'new'; id: string; claimed: Claimed }
  | { kind: 'replay'; id: string }
  | { kind: 'under way'; operationId: string };

/**
 * Checks whether a new volume is allowed, then charges the quota and inserts the volume, its operation and its
 * idempotency key. Throws `HostIsFull` when the chosen host refuses it.
 */
async function admitVolume(app: App, tx: Tx, request: Request, { hosts, tried }: KnownHosts): Promise<Admitted> {
  const { accountId, name, size_gb, idempotencyKey } = request;
  const [account, first] = await Promise.all([
    lockAccount(tx, accountId),
    idempotencyKey && findKey(tx, accountId, idempotencyKey),
  ]);
  byTable(() => checkVolumeSize(app, hosts, size_gb));
  if (first) {
    const { id, operationId } = first;
    return operationId === null ? { kind: 'replay', id } : { kind: 'under way', operationId };
  }
  const admitting = hosts.filter((host) => admitsAccount(app, host, account));
  if (hosts.length > 0 && admitting.length === 0) throw refusedByTable(emulatedOnly());
  checkMayRun(account);
  const id = uuidv7();
  const row = { id, account_id: accountId, name, kind: 'data', size_gb, state: 'creating' } as const;
  checkQuota(account, volumeUse(row));
  const host_id = byTable(() => chooseHost(app, admitting, volumeRoom(row), tried)).id;
  const scope = { accountId, hostId: host_id, actor: 'user' } as const;
  await transition(app, tx, scope, (steps) => steps.insertVolume({ ...row, host_id })).catch(throwHostIsFull(host_id));
  const claimed = await insertClaimed(app, tx, {
    ...{ account_id: accountId, host_id, machine_id: null, volume_id: id, snapshot_id: null },
    ...{ kind: 'create_volume', args: '{}', actor: 'user' },
  } as const);
  if (idempotencyKey) await insertKey(tx, accountId, idempotencyKey, { kind: 'volume', id });
  return { kind: 'new', id, claimed };
}

/**
 * Returns the host for the new volume. Throws `host_unavailable` when no host is reachable, and `fleet_capacity` when
 * no reachable host has room for it.
 */
function chooseHost(app: App, hosts: readonly HostFacts[], room: Room, tried: ReadonlySet<string>): HostFacts {
  const host = chooseReachableHost(app, hosts, { room, stack: undefined }, tried);
  if (!host) throw fleetIsFull(room);
  return host;
}

/** Throws `validation_error` for a volume that is larger than what the disk of the largest host offers. */
function checkVolumeSize({ config }: App, hosts: readonly HostFacts[], sizeGb: number): void {
  // After an update of the service, no host's disk size is known until its agent reports it. Then skip this check.
  if (hosts.every((host) => host.disk_mb === 0)) return;
  const most = Math.max(...hosts.map((host) => capacityOf(host, config.overcommit).diskGb));
  if (sizeGb <= most) return;
  throw new ServiceError('validation_error', `size_gb must be at most ${most}, ${offeredDisk(config.overcommit)}.`);
}
