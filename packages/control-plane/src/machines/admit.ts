// The first transaction of a create: the idempotency key, the quota, a host with room, an address and the row, or
// nothing at all.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import { sql } from 'kysely';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { AccountRow, HostRow, MachineRow } from '../db/tables.ts';
import { addressAt, countAddresses } from '../hosts/addresses.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { rankHosts } from '../hosts/placement.ts';
import { listHosts, nextAddressIndex, reserveMemory } from '../hosts/store.ts';
import { chargeQuota } from '../quotas/charge.ts';
import { machineAmounts } from '../quotas/machine-amounts.ts';
import { checkBalance } from '../wallet/check.ts';
import { type Claim, freshClaim, newToken } from './claim.ts';
import { takeKey } from './idempotency.ts';
import { fleetIsFull } from './refusals.ts';
import { admitsAccount, emulatedOnly } from './tenancy.ts';

export type CreateRequest = Required<MachineCreate>;

/** What an Idempotency-Key stands for: the key and the SHA-256 of the request it came with. */
export type IdempotencyKey = { key: string; fingerprint: Buffer };

/**
 * Admits a create: the row is `provisioning`, claimed by the caller, and charged to the quotas. Undefined when another
 * request took the idempotency key first. Throws 400s, `forbidden`, `insufficient_balance`, `quota_exceeded`,
 * `fleet_capacity`, `host_unavailable`, in this order.
 */
export async function admitMachine(
  app: App,
  account: AccountRow,
  request: CreateRequest,
  idempotencyKey: IdempotencyKey | undefined,
): Promise<Claim | undefined> {
  const hosts = await listHosts(app.db);
  checkImage(hosts, request);
  const admitting = hosts.filter((host) => admitsAccount(app, host, account));
  if (hosts.length > 0 && admitting.length === 0) throw emulatedOnly();
  await checkBalance(app, account);
  const id = uuidv7();
  return app.db.transaction().execute(async (tx) => {
    if (idempotencyKey && !(await takeKey(tx, account.id, idempotencyKey, id))) return undefined;
    await chargeQuota(tx, account.id, machineAmounts(request));
    const host = await reserveHost(app, tx, admitting, request);
    const token = newToken();
    return { token, machine: await insertWithAddress(app, tx, { id, accountId: account.id, request, host, token }) };
  });
}

/** The first host, best first, that has the memory; it is reserved. Throws `fleet_capacity`, `host_unavailable`. */
async function reserveHost(app: App, tx: Tx, hosts: readonly HostRow[], request: CreateRequest): Promise<HostRow> {
  const connected = new Set(app.hosts.connectedIds());
  const reachable = hosts.filter((host) => connected.has(host.id));
  if (reachable.length === 0) throw new HostUnavailable(false);
  const { memoryOvercommit } = app.config;
  for (const host of rankHosts(reachable, { memoryMb: request.memory_mb, stack: request.stack }, memoryOvercommit)) {
    if (await reserveMemory(tx, host.id, request.memory_mb, memoryOvercommit)) return host;
  }
  throw fleetIsFull(request.memory_mb);
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

type Admission = { id: string; accountId: string; request: CreateRequest; host: HostRow; token: string };

/** Collisions in a row after which the free addresses are looked up instead of tried. */
const TRIES = 8;

/** The host's row is locked by the reservation, so no other create on this host takes an address meanwhile. */
async function insertWithAddress(app: App, tx: Tx, admission: Admission): Promise<MachineRow> {
  const { host } = admission;
  for (let attempt = 0; attempt < TRIES; attempt++) {
    const row = await insertMachine(app, tx, admission, addressAt(host.subnet, await nextAddressIndex(tx, host.id)));
    if (row) return row;
  }
  const address = await findFreeAddress(tx, host);
  const row = address === undefined ? undefined : await insertMachine(app, tx, admission, address);
  if (row) return row;
  throw new ServiceError(
    'fleet_capacity',
    'No host has a private address left. This is a limit of the fleet, not a quota of the account: retry later.',
    { retryAfterSec: 10 },
  );
}

async function findFreeAddress(tx: Tx, host: HostRow): Promise<string | undefined> {
  const rows = await tx
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

function insertMachine(app: App, tx: Tx, admission: Admission, address: string): Promise<MachineRow | undefined> {
  const { id, accountId, request, host, token } = admission;
  return tx
    .insertInto('machines')
    .values({
      id,
      account_id: accountId,
      host_id: host.id,
      name: request.name,
      state: 'provisioning',
      desired: 'running',
      generation: 1,
      vcpus: request.vcpus,
      memory_mb: request.memory_mb,
      rootfs_size_gb: request.rootfs_size_gb,
      stack: request.stack,
      private_ip: address,
      metadata: JSON.stringify(request.metadata),
      isolation: host.isolation,
      ...freshClaim(app, token),
    })
    .onConflict((conflict) =>
      conflict.columns(['host_id', 'private_ip']).where(sql<boolean>`state <> 'destroyed'`).doNothing(),
    )
    .returningAll()
    .executeTakeFirst();
}
