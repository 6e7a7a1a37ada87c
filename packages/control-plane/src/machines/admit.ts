// Decides in one transaction whether a new machine is allowed, and on which host. The transaction locks the account's
// row, so parallel creates of one account are checked one after the other. Therefore they never exceed the quota
// together, and a second request with the same idempotency key finds the machine of the first.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Amounts } from '@sandbar/contract/tier-limits.ts';
import { v7 as uuidv7 } from 'uuid';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { checkMayRun } from '../billing/check.ts';
import { findImagePublication, findPublication, type Published } from '../blobs/store.ts';
import type { Tx } from '../db/database.ts';
import type { AccountRow, MachineRow, VolumeRow } from '../db/tables.ts';
import { commitUnsynced } from '../db/transaction.ts';
import type { HostFacts } from '../hosts/host-table.ts';
import { oncePerList } from '../hosts/once-per-list.ts';
import type { Room } from '../hosts/room.ts';
import { byTable, type KnownHosts, refusedByTable, throwHostIsFull } from '../hosts/with-hosts.ts';
import { type First, findKey, type IdempotencyKey, insertKey } from '../idempotency/keys.ts';
import { setExpiry } from '../operations/expiry.ts';
import { type Claimed, insertClaimed } from '../operations/store.ts';
import { checkQuota } from '../quotas/check.ts';
import { effectiveLimits } from '../quotas/limits.ts';
import { pinSnapshot } from '../snapshots/store.ts';
import { machineAmounts, machineRoom } from '../transitions/amounts.ts';
import { insertMachine } from '../transitions/transition.ts';
import { checkBootVolumes, checkIdle } from '../volumes/boot.ts';
import { lockVolumes } from '../volumes/store.ts';
import { chooseHostOf } from './place.ts';
import { accountBounds, checkSize, hostBounds } from './size-bounds.ts';
import {
  type AskedCreate,
  type CreateRequest,
  completeRequest,
  type DiskSource,
  findSource,
  identityOf,
} from './source.ts';
import { type MachineView, selectMachineViews } from './store.ts';
import { admitsAccount, emulatedOnly } from './tenancy.ts';

export type AdmissionRequest = {
  accountId: string;
  asked: AskedCreate;
  idempotencyKey: IdempotencyKey | undefined;
  /** Hosts that have refused to take over volumes for this machine, or that do not answer. */
  avoid: ReadonlySet<string>;
};

/**
 * The result: a new machine with its operation (`new`), the machine of an earlier request with the same key (`replay`),
 * or the unfinished create operation of that request (`under way`).
 */
export type Admitted =
  | { kind: 'new'; machine: MachineRow; claimed: Claimed; expiresAt: Date | null }
  | { kind: 'replay'; machine: MachineView }
  | { kind: 'under way'; operationId: string };

/**
 * Admits a create request: inserts the machine in state `provisioning`, charges the quota, and inserts the create
 * operation, which the caller has claimed. Throws `validation_error`, `conflict`, `not_found`, `forbidden`,
 * `insufficient_balance`, `quota_exceeded`, `fleet_capacity` and `host_unavailable`, checked in this order. Throws
 * `MustMove` when volumes of the machine must first come to the host that can take it. Must be called by `withHosts`,
 * for refusals that follow from the table of hosts.
 */
export async function admitMachine(
  app: App,
  tx: Tx,
  request: AdmissionRequest,
  { hosts, tried }: KnownHosts,
): Promise<Admitted> {
  const { accountId, asked, idempotencyKey, avoid } = request;
  const [volumes, , account, first] = await Promise.all([
    lockVolumes(tx, volumeIdsOf(asked)),
    asked.snapshot_id !== undefined && pinSnapshot(tx, accountId, asked.snapshot_id),
    lockAccount(tx, accountId),
    idempotencyKey && findKey(tx, accountId, idempotencyKey),
  ]);
  const ofAccount = accountBounds(effectiveLimits(account));
  const ofHosts = hostBounds(hosts, app.config.overcommit);
  const checkAllSizes = (size: MachineSize) => {
    checkSize(ofAccount, size);
    byTable(() => checkSize(ofHosts, size));
  };
  checkAllSizes(identityOf(asked));
  if (first) return replay(tx, first);
  const rootVolume = volumes.find(({ id }) => id === asked.root_volume_id?.toLowerCase());
  const source = await findSource(tx, accountId, asked, rootVolume);
  const bootVolumes = checkBootVolumes(accountId, asked.volumes, volumes);
  const disks = source?.kind === 'volume' && rootVolume ? [...bootVolumes, rootVolume] : bootVolumes;
  await checkIdle(tx, disks);
  const published = app.objects && source?.kind === 'snapshot' ? await findPublication(tx, source.id) : undefined;
  const complete = completeRequest(asked, source);
  checkAllSizes(complete);
  if (!source) byTable(() => checkImage(hosts, complete));
  const isInStore = !source && (await isImageElsewhere(app, tx, hosts, complete.stack));
  const host = placeMachine(app, { account, hosts, complete, disks, published, isInStore, tried, avoid });
  const insertion = { account, host, complete, rootVolume, idempotencyKey };
  const { machine, claimed } = await insertWithOperation(app, tx, insertion);
  const expiresAt = asked.expires_in_sec == null ? null : await setExpiry(tx, machine, asked.expires_in_sec);
  return { kind: 'new', machine, claimed, expiresAt };
}

/**
 * Returns the machine of the first request with the same key, or the create operation of that request if it is
 * unfinished.
 */
async function replay(tx: Tx, { id, operationId }: First): Promise<Admitted> {
  if (operationId !== null) return { kind: 'under way', operationId };
  const machine = await selectMachineViews(tx).where('id', '=', id).executeTakeFirstOrThrow();
  return { kind: 'replay', machine };
}

/**
 * Throws `validation_error` for a stack that no host has, or for a root disk that is smaller than the stack's image.
 */
function checkImage(hosts: readonly HostFacts[], request: CreateRequest): void {
  // Without a host there is nothing to check here. `placeMachine` refuses the request later, after the checks of the
  // account.
  if (hosts.length === 0) return;
  const images = smallestImages(hosts);
  const minimum = images.get(request.stack);
  if (minimum === undefined) {
    const known = [...images.keys()].sort().join(', ') || 'none yet';
    throw new ServiceError('validation_error', `stack must be one of the known image stacks (${known}).`);
  }
  if (request.rootfs_size_gb < minimum) {
    throw new ServiceError(
      'validation_error',
      `rootfs_size_gb must be at least ${minimum}, the size of the image "${request.stack}".`,
    );
  }
}

/** Returns the size in GiB of the smallest image of each stack. */
const smallestImages = oncePerList((hosts: readonly HostFacts[]) => {
  const sizes = new Map<string, number>();
  for (const { stack, min_rootfs_gb } of hosts.flatMap((host) => host.images)) {
    sizes.set(stack, Math.min(sizes.get(stack) ?? min_rootfs_gb, min_rootfs_gb));
  }
  return sizes;
});

type MachineSize = Parameters<typeof checkSize>[1];

/** Returns the ids of the volumes that the request needs, also of its root volume. */
const volumeIdsOf = ({ root_volume_id, volumes }: AskedCreate): string[] => [
  ...(root_volume_id === undefined ? [] : [root_volume_id]),
  ...volumes.map(({ volume_id }) => volume_id),
];

/**
 * Returns the hosts on which the machine can be. A published snapshot can be fetched by every host, but saved memory goes
 * on only on hosts that give machines the same processor.
 */
function hostsFor(hosts: readonly HostFacts[], source: DiskSource | undefined, published: Published | undefined) {
  if (source?.kind !== 'snapshot' || !published) return hosts;
  const { processor, manifest } = published;
  const isAble = (host: HostFacts) => manifest.kind === 'disk' || (processor !== null && host.processor === processor);
  return hosts.filter((host) => host.id === source.hostId || isAble(host));
}

/** Returns whether the image of a stack is in the object store, if there is a host that would have to fetch it. */
async function isImageElsewhere(app: App, tx: Tx, hosts: readonly HostFacts[], stack: string): Promise<boolean> {
  if (!app.objects || hosts.every(({ images }) => images.some((image) => image.stack === stack))) return false;
  return (await findImagePublication(tx, stack)) !== undefined;
}

type Placing = {
  account: AccountRow;
  hosts: readonly HostFacts[];
  complete: CreateRequest;
  /** The volumes of the machine, also its root volume. */
  disks: readonly VolumeRow[];
  /** The snapshot of the machine in the object store. */
  published: Published | undefined;
  /** Whether a host that does not have the image can fetch it. */
  isInStore: boolean;
  tried: ReadonlySet<string>;
  avoid: ReadonlySet<string>;
};

/**
 * Returns the host for the machine. Checks first that the account may use a host, has enough balance and has enough
 * quota. Throws `forbidden`, `insufficient_balance`, `quota_exceeded`, `host_unavailable`, `fleet_capacity`, `MustMove`.
 */
function placeMachine(app: App, placing: Placing): HostFacts {
  const { account, complete, disks, published, isInStore, tried, avoid } = placing;
  const { source, stack } = complete;
  const hosts = hostsFor(placing.hosts, source, published);
  const snapshotHost = source?.kind === 'snapshot' ? source.hostId : undefined;
  const fixed = published ? undefined : snapshotHost;
  const homes = new Set(disks.map(({ host_id }) => host_id));
  const home = fixed ?? (homes.size === 1 ? [...homes][0] : undefined);
  const possible = home === undefined ? hosts : hosts.filter(({ id }) => id === home);
  if (possible.length > 0 && !possible.some((host) => admitsAccount(app, host, account)))
    throw refusedByTable(emulatedOnly());
  checkMayRun(account);
  checkQuota(account, amountsOf(complete));
  const admitting = hosts.filter((host) => admitsAccount(app, host, account));
  // A snapshot or root volume brings what it needs of its image, so require no image.
  const wanted = { room: roomOf(complete), stack: source ? undefined : stack };
  const from = { fixed, preferred: snapshotHost, home, disks };
  return byTable(() => chooseHostOf(app, { hosts: admitting, wanted, stack, isInStore, ...from, tried, avoid }));
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
  host: HostFacts;
  complete: CreateRequest;
  rootVolume: VolumeRow | undefined;
  idempotencyKey: IdempotencyKey | undefined;
};

/**
 * Inserts the machine, its create operation and its idempotency key. All statements are sent at once. The machine comes
 * first, because the other rows refer to it.
 */
async function insertWithOperation(
  app: App,
  tx: Tx,
  { account, host, complete, rootVolume, idempotencyKey }: Insertion,
): Promise<{ machine: MachineRow; claimed: Claimed }> {
  const id = uuidv7();
  const taken = complete.source?.kind === 'volume' ? rootVolume : undefined;
  const { volumes } = complete;
  const scope = { accountId: account.id, hostId: host.id };
  const [machine, claimed] = await Promise.all([
    insertMachine(app, tx, scope, rowOf(id, account, host, complete), { taken, attached: volumes }),
    insertClaimed(app, tx, {
      account_id: account.id,
      host_id: host.id,
      machine_id: id,
      volume_id: taken?.id ?? null,
      snapshot_id: null,
      kind: 'create',
      args: JSON.stringify(volumes.length === 0 ? {} : { volumes }),
      actor: 'user',
    }),
    idempotencyKey && insertKey(tx, account.id, idempotencyKey, { kind: 'machine', id }),
    // This commit need not be synced to disk; the commit that records the running machine is. If PostgreSQL crashes
    // before that, the client has no answer yet, and the reconciler removes the machine from its host because it has
    // no row. If the machine took a root volume, this would also remove the volume's disk, so then sync this commit
    // too.
    taken ? undefined : commitUnsynced(tx),
  ]).catch(throwHostIsFull(host.id));
  return { machine, claimed };
}

const sourceIdOf = (source: DiskSource | undefined, kind: DiskSource['kind']): string | null =>
  source?.kind === kind ? source.id : null;

function rowOf(id: string, account: AccountRow, host: HostFacts, complete: CreateRequest) {
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
