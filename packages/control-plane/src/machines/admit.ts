// Decides in one transaction whether a new machine is allowed, and on which host. The transaction locks the account's
// row, so parallel creates of one account are checked one after the other. Therefore they never exceed the quota
// together, and a second request with the same idempotency key finds the machine of the first.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Amounts } from '@sandbar/contract/tier-limits.ts';
import { v7 as uuidv7 } from 'uuid';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { checkMayRun } from '../billing/check.ts';
import type { Tx } from '../db/database.ts';
import type { AccountRow, HostRow, MachineRow, VolumeRow } from '../db/tables.ts';
import { commitUnsynced } from '../db/transaction.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { rankHosts } from '../hosts/placement.ts';
import type { Room } from '../hosts/room.ts';
import { listHosts } from '../hosts/store.ts';
import { setExpiry } from '../operations/expiry.ts';
import { type Claimed, insertClaimed } from '../operations/store.ts';
import { checkQuota } from '../quotas/check.ts';
import { effectiveLimits } from '../quotas/limits.ts';
import { machineAmounts, machineRoom } from '../transitions/amounts.ts';
import { insertMachine } from '../transitions/transition.ts';
import { lockVolume } from '../volumes/store.ts';
import { findKey, type IdempotencyKey, identityOf, insertKey } from './idempotency.ts';
import { fleetIsFull, hostIsFull } from './refusals.ts';
import { checkSize, sizeBounds } from './size-bounds.ts';
import { type AskedCreate, type CreateRequest, completeRequest, type DiskSource, findSource } from './source.ts';
import { type MachineView, selectMachineViews } from './store.ts';
import { admitsAccount, emulatedOnly } from './tenancy.ts';

export type AdmissionRequest = {
  accountId: string;
  asked: AskedCreate;
  idempotencyKey: IdempotencyKey | undefined;
  /** Ids of hosts that turned out to be full when their row was locked. */
  triedHosts: Set<string>;
};

/**
 * The result: a new machine with its operation (`new`), the machine of an earlier request with the same key (`replay`),
 * or the unfinished create operation of that request (`under way`).
 */
export type Admitted =
  | { kind: 'new'; machine: MachineRow; claimed: Claimed; expiresAt: Date | null }
  | { kind: 'replay'; machine: MachineView }
  | { kind: 'under way'; operationId: string };

/** The chosen host is full. The caller has to try the next host in a new transaction, since this one is rolled back. */
export class HostIsFull extends Error {
  readonly hostId: string;
  constructor(hostId: string) {
    super(`Host ${hostId} has no room left.`);
    this.hostId = hostId;
  }
}

/**
 * Admits a create request: inserts the machine in state `provisioning`, charges the quota, and inserts the create
 * operation, which the caller has claimed. Throws `validation_error`, `conflict`, `not_found`, `forbidden`,
 * `insufficient_balance`, `quota_exceeded`, `fleet_capacity` and `host_unavailable`, checked in this order, and
 * `HostIsFull`.
 */
export async function admitMachine(app: App, tx: Tx, request: AdmissionRequest): Promise<Admitted> {
  const { accountId, asked, idempotencyKey } = request;
  const [volume, account, hosts, firstId] = await Promise.all([
    asked.root_volume_id === undefined ? undefined : lockVolume(tx, asked.root_volume_id),
    lockAccount(tx, accountId),
    listHosts(tx),
    idempotencyKey && findKey(tx, accountId, idempotencyKey),
  ]);
  const bounds = sizeBounds(effectiveLimits(account), hosts, app.config.overcommit);
  checkSize(bounds, identityOf(asked));
  if (firstId !== undefined) return findFirst(tx, firstId);
  const source = await findSource(tx, accountId, asked, volume);
  const complete = completeRequest(asked, source);
  checkSize(bounds, complete);
  if (!source) checkImage(hosts, complete);
  const host = chooseHost(app, { account, hosts, complete, tried: request.triedHosts });
  const { machine, claimed } = await insertWithOperation(app, tx, { account, host, complete, volume, idempotencyKey });
  const expiresAt = asked.expires_in_sec == null ? null : await setExpiry(tx, machine, asked.expires_in_sec);
  return { kind: 'new', machine, claimed, expiresAt };
}

/**
 * Returns the machine of the first request with the same key, or the create operation of that request if it is
 * unfinished.
 */
async function findFirst(tx: Tx, machineId: string): Promise<Admitted> {
  const operation = await tx
    .selectFrom('operations')
    .select('id')
    .where('machine_id', '=', machineId)
    .where('kind', '=', 'create')
    .where('finished_at', 'is', null)
    .executeTakeFirst();
  if (operation) return { kind: 'under way', operationId: operation.id };
  const machine = await selectMachineViews(tx).where('id', '=', machineId).executeTakeFirstOrThrow();
  return { kind: 'replay', machine };
}

/**
 * Throws `validation_error` for a stack that no host has, or for a root disk that is smaller than the stack's image.
 */
function checkImage(hosts: readonly HostRow[], request: CreateRequest): void {
  // Without a host there is nothing to check here. `chooseHost` refuses the request later, after the checks of the
  // account.
  if (hosts.length === 0) return;
  const images = hosts.flatMap((host) => host.images);
  const matching = images.filter((image) => image.stack === request.stack);
  if (matching.length === 0) {
    const known = [...new Set(images.map((image) => image.stack))].sort().join(', ') || 'none yet';
    throw new ServiceError('validation_error', `stack must be one of the known image stacks (${known}).`);
  }
  const minimum = Math.min(...matching.map((image) => image.min_rootfs_gb));
  if (request.rootfs_size_gb < minimum) {
    throw new ServiceError(
      'validation_error',
      `rootfs_size_gb must be at least ${minimum}, the size of the image "${request.stack}".`,
    );
  }
}

type Placing = { account: AccountRow; hosts: readonly HostRow[]; complete: CreateRequest; tried: ReadonlySet<string> };

/**
 * Returns the host with the most room for the machine. Checks first that the account may use a host, has enough balance
 * and has enough quota. Throws `forbidden`, `insufficient_balance`, `quota_exceeded`, `host_unavailable`,
 * `fleet_capacity`.
 */
function chooseHost(app: App, { account, hosts, complete, tried }: Placing): HostRow {
  const { source, stack } = complete;
  const possible = source ? hosts.filter((host) => host.id === source.hostId) : hosts;
  const admitting = possible.filter((host) => admitsAccount(app, host, account));
  if (possible.length > 0 && admitting.length === 0) throw emulatedOnly();
  checkMayRun(account);
  checkQuota(account, amountsOf(complete));
  const connected = new Set(app.hosts.connectedIds());
  const reachable = admitting.filter((host) => connected.has(host.id));
  if (reachable.length === 0) throw new HostUnavailable(false);
  // The host of a snapshot or root volume can run the machine without the image of the stack, so require no image.
  const wanted = { room: roomOf(complete), stack: source ? undefined : stack };
  const [best] = rankHosts(reachable, wanted, app.config.overcommit).filter(({ id }) => !tried.has(id));
  if (best) return best;
  throw source ? hostIsFull(source.kind, wanted.room) : fleetIsFull(wanted.room);
}

/**
 * Returns the quota amounts that the new machine adds. A root volume already counts toward storage_gb, so only the
 * growth of its disk is added.
 */
function amountsOf(request: CreateRequest): Partial<Amounts> {
  const { source, rootfs_size_gb } = request;
  const amounts = machineAmounts(request);
  return source?.kind === 'volume' ? { ...amounts, storage_gb: rootfs_size_gb - source.sizeGb } : amounts;
}

/** Returns the room that the host must reserve for the new machine. A root volume's disk is reserved already. */
function roomOf(request: CreateRequest): Room {
  const room = machineRoom({ ...request, state: 'provisioning' });
  return request.source?.kind === 'volume' ? { ...room, diskGb: room.diskGb - request.source.sizeGb } : room;
}

type Insertion = {
  account: AccountRow;
  host: HostRow;
  complete: CreateRequest;
  volume: VolumeRow | undefined;
  idempotencyKey: IdempotencyKey | undefined;
};

/**
 * Inserts the machine, its create operation and its idempotency key. All statements are sent at once. The machine comes
 * first, because the other rows refer to it.
 */
async function insertWithOperation(
  app: App,
  tx: Tx,
  { account, host, complete, volume, idempotencyKey }: Insertion,
): Promise<{ machine: MachineRow; claimed: Claimed }> {
  const id = uuidv7();
  const taken = complete.source?.kind === 'volume' ? volume : undefined;
  const scope = { accountId: account.id, hostId: host.id };
  try {
    const [machine, claimed] = await Promise.all([
      insertMachine(app, tx, scope, rowOf(id, account, host, complete), taken),
      insertClaimed(app, tx, {
        account_id: account.id,
        host_id: host.id,
        machine_id: id,
        volume_id: taken?.id ?? null,
        snapshot_id: null,
        kind: 'create',
        args: '{}',
        actor: 'user',
      }),
      idempotencyKey && insertKey(tx, account.id, idempotencyKey, id),
      // This commit need not be synced to disk; the commit that records the running machine is. If PostgreSQL crashes
      // before that, the client has no answer yet, and the reconciler removes the machine from its host because it has
      // no row. If the machine took a root volume, this would also remove the volume's disk, so then sync this commit
      // too.
      taken ? undefined : commitUnsynced(tx),
    ]);
    return { machine, claimed };
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'fleet_capacity') throw new HostIsFull(host.id);
    throw error;
  }
}

const sourceIdOf = (source: DiskSource | undefined, kind: DiskSource['kind']): string | null =>
  source?.kind === kind ? source.id : null;

function rowOf(id: string, account: AccountRow, host: HostRow, complete: CreateRequest) {
  const { name, vcpus, memory_mb, rootfs_size_gb, stack, metadata, env, on_expiry, source } = complete;
  return {
    ...{ id, account_id: account.id, host_id: host.id, generation: 1 },
    state: 'provisioning' as const,
    ...{ name, vcpus, memory_mb, rootfs_size_gb, stack, on_expiry, isolation: host.isolation },
    metadata: JSON.stringify(metadata),
    env: JSON.stringify(env),
    snapshot_id: sourceIdOf(source, 'snapshot'),
    root_volume_id: sourceIdOf(source, 'volume'),
  };
}
