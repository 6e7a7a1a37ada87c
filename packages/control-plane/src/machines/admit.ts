// Whether and where a create is admitted: what forbids it at once, then one host after the other, each by the one
// transaction of admission.ts.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Amounts } from '@sandbar/contract/quota.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { AccountRow, HostRow } from '../db/tables.ts';
import { addressAt, countAddresses } from '../hosts/addresses.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { rankHosts } from '../hosts/placement.ts';
import { checkQuota } from '../quotas/charge.ts';
import type { LimitColumns, UseColumns } from '../quotas/limits.ts';
import { machineAmounts } from '../quotas/machine-amounts.ts';
import { checkBalance } from '../wallet/check.ts';
import { type Admission, type Outcome, tryToAdmit } from './admission.ts';
import { type Claim, newToken } from './claim.ts';
import { isKeyTaken } from './idempotency.ts';
import { fleetIsFull, hostIsFull } from './refusals.ts';
import type { CreateRequest } from './source.ts';
import { admitsAccount, emulatedOnly } from './tenancy.ts';

/** What an Idempotency-Key stands for: the key and the SHA-256 of the request it came with. */
export type IdempotencyKey = { key: string; fingerprint: Buffer };

export type AdmissionRequest = {
  account: AccountRow;
  hosts: readonly HostRow[];
  request: CreateRequest;
  idempotencyKey: IdempotencyKey | undefined;
};

/**
 * Admits a create: the row is `provisioning`, claimed by the caller, and charged to the quotas. Undefined when another
 * request took the idempotency key or the root volume first. Throws 400s, `forbidden`, `insufficient_balance`, `quota_exceeded`,
 * `fleet_capacity`, `host_unavailable`, in this order.
 */
export async function admitMachine(
  app: App,
  { account, hosts, request, idempotencyKey }: AdmissionRequest,
): Promise<Claim | undefined> {
  const { source } = request;
  if (!source) checkImage(hosts, request);
  const possible = source ? hosts.filter((host) => host.id === source.hostId) : hosts;
  const admitting = possible.filter((host) => admitsAccount(app, host, account));
  if (possible.length > 0 && admitting.length === 0) throw emulatedOnly();
  await checkBalance(app, account);
  const token = newToken();
  const admission = { id: uuidv7(), accountId: account.id, request, token, idempotencyKey };
  const { reachable, ranked } = candidatesFor(app, admitting, request);
  // As it is now; as it was under the lock, once a host was tried.
  let known: LimitColumns & UseColumns = account;
  for (const host of ranked) {
    const outcome = await admitTo(app, { ...admission, host });
    if (outcome.kind === 'admitted') return { token, machine: outcome.machine };
    if (outcome.kind === 'key taken' || outcome.kind === 'volume taken') return undefined;
    known = outcome.account;
  }
  // What is full may be full of the machine that the first request with this key made in this moment.
  if (idempotencyKey && (await isKeyTaken(app.db, account.id, idempotencyKey.key))) return undefined;
  checkQuota(known, amountsOf(request));
  if (reachable.length === 0) throw new HostUnavailable(false);
  throw source ? hostIsFull(source.kind, request.memory_mb) : fleetIsFull(request.memory_mb);
}

/** What the create adds to the account's use: its root volume counts already. */
function amountsOf(request: CreateRequest): Partial<Amounts> {
  const { source, rootfs_size_gb } = request;
  const amounts = machineAmounts(request);
  return source?.kind === 'volume' ? { ...amounts, storage_gb: rootfs_size_gb - source.sizeGb } : amounts;
}

/** The hosts that answer, and those of them that may have room, best first. */
function candidatesFor(app: App, hosts: readonly HostRow[], { memory_mb: memoryMb, stack, source }: CreateRequest) {
  const connected = new Set(app.hosts.connectedIds());
  const reachable = hosts.filter((host) => connected.has(host.id));
  const { memoryOvercommit } = app.config;
  // What a host has a snapshot or a disk of needs no image to be made from.
  const ranked = rankHosts(reachable, { memoryMb, stack: source ? undefined : stack }, memoryOvercommit);
  return { reachable, ranked };
}

/** Addresses in a row that are passed over when they are taken; after that the free ones are looked up. */
const TRIES = 8;

/** Admits to one host with the next address that is free. Throws `fleet_capacity` when none is. */
async function admitTo(app: App, admission: Admission): Promise<Exclude<Outcome, { kind: 'address taken' }>> {
  for (let skip = 0; skip < TRIES; skip++) {
    const outcome = await tryToAdmit(app, admission, { skip });
    if (outcome.kind !== 'address taken') return outcome;
  }
  for (;;) {
    const address = await findFreeAddress(app, admission.host);
    if (address === undefined) throw noAddressLeft();
    const outcome = await tryToAdmit(app, admission, { address });
    if (outcome.kind !== 'address taken') return outcome;
  }
}

/** Throws `validation_error` for a stack nobody has, or a disk smaller than its image. */
function checkImage(hosts: readonly HostRow[], request: CreateRequest): void {
  // Placement refuses it, after everything that is the account's own.
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

const noAddressLeft = () =>
  new ServiceError(
    'fleet_capacity',
    'No host has a private address left. This is a limit of the fleet, not a quota of the account: retry later.',
    { retryAfterSec: 10 },
  );

async function findFreeAddress(app: App, host: HostRow): Promise<string | undefined> {
  const rows = await app.db
    .selectFrom('machines')
    .select('private_ip')
    .where('host_id', '=', host.id)
    .where('state', '<>', 'destroyed')
    .execute();
  const taken = new Set(rows.map((row) => row.private_ip));
  for (let index = 0; index < countAddresses(host.subnet); index++) {
    const address = addressAt(host.subnet, index);
    if (!taken.has(address)) return address;
  }
  return undefined;
}
