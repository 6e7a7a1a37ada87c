// Create: admit (one transaction), make it run on its host, then say so (a second transaction). What fails in between is
// undone here; what dies in between is found by the reconciler, which runs `finishCreate` or `discard` as well.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import type { TierLimits } from '@sandbar/contract/quota.ts';
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { listHosts } from '../hosts/store.ts';
import { effectiveLimits } from '../quotas/limits.ts';
import { admitMachine, type IdempotencyKey } from './admit.ts';
import { type Claim, holdClaim } from './claim.ts';
import { ensureOnHost } from './ensure.ts';
import { findFirst, fingerprintOf, isKeyTaken } from './idempotency.ts';
import { ClaimLost } from './refusals.ts';
import { hasRootVolumeToReturn, sizeOfReturned } from './root-volume.ts';
import { recordRunning } from './running.ts';
import { type AskedCreate, completeRequest, type DiskSource, findSource, identityOf, readCreate } from './source.ts';
import { deleteRow, setDesired } from './store.ts';

export type Created = { row: MachineRow; isReplay: boolean };

/**
 * Makes a machine and waits until it runs, or finds the one that an earlier request with the same key made. Throws
 * `validation_error`, `not_found` or `conflict` of its snapshot or root volume, `forbidden`, `insufficient_balance`,
 * `quota_exceeded`, `fleet_capacity`, `host_unavailable`, what the host refused with, or `conflict` when it was deleted
 * meanwhile; after a throw nothing of it is left, or soon will be, and its root volume is a volume again.
 */
export async function createMachine(app: App, accountId: string, body: MachineCreate, key?: string): Promise<Created> {
  const asked = readCreate(body);
  const [account, knownHosts] = await Promise.all([getAccount(app.db, accountId), listHosts(app.db)]);
  const limits = effectiveLimits(account);
  const identity = identityOf(asked);
  checkMachineSize(limits, identity);
  const idempotencyKey = key === undefined ? undefined : { key, fingerprint: fingerprintOf(identity) };
  for (let hosts = knownHosts; ; hosts = await listHosts(app.db)) {
    const first = idempotencyKey && (await findFirst(app, accountId, idempotencyKey));
    if (first) return { row: first, isReplay: true };
    const source = await findSourceUnlessReplay(app, accountId, asked, idempotencyKey);
    if (source === 'replay') continue;
    const request = completeRequest(asked, source);
    if (source) checkMachineSize(limits, request);
    const claim = await admitMachine(app, { account, hosts, request, idempotencyKey });
    if (claim) return { row: await holdClaim(app, claim, (held) => finishCreate(app, held)), isReplay: false };
  }
}

/** A root volume is no volume any more once the first request with this key has taken it. */
async function findSourceUnlessReplay(
  app: App,
  accountId: string,
  asked: AskedCreate,
  idempotencyKey: IdempotencyKey | undefined,
): Promise<DiskSource | undefined | 'replay'> {
  try {
    return await findSource(app, accountId, asked);
  } catch (error) {
    if (idempotencyKey && (await isKeyTaken(app.db, accountId, idempotencyKey.key))) return 'replay';
    throw error;
  }
}

/** The per-machine maximum of the tier or the account. Throws `validation_error`: it is no quota. */
function checkMachineSize(limits: TierLimits, { vcpus = 0, memory_mb = 0 }: Partial<MachineCreate>): void {
  if (vcpus > limits.vcpus_per_machine) {
    throw new ServiceError('validation_error', `vcpus must be at most ${limits.vcpus_per_machine} for this account.`);
  }
  if (memory_mb > limits.memory_mb_per_machine) {
    throw new ServiceError(
      'validation_error',
      `memory_mb must be at most ${limits.memory_mb_per_machine} for this account.`,
    );
  }
}

/** From `provisioning` to `running`, or to nothing: the second half of a create, also after a crash. */
export async function finishCreate(app: App, claim: Claim): Promise<MachineRow> {
  try {
    return await makeRunning(app, claim);
  } catch (error) {
    if (!(error instanceof ClaimLost)) await undoCreate(app, claim);
    throw error;
  }
}

/** Ensures a claimed `provisioning` machine running and records that it does. */
export async function makeRunning(app: App, claim: Claim): Promise<MachineRow> {
  return recordRunning(app, claim, await ensureOnHost(app, claim.machine, 'running'));
}

/**
 * The undo's own failure is logged and left to the reconciler: the client gets the error that made it necessary. But an
 * operation that lost its machine to a delete says that, whatever its host call came back with.
 */
async function undoCreate(app: App, { machine, token }: Claim): Promise<void> {
  try {
    const row = await setDesired(app, machine.id, token, 'discarded');
    await discard(app, { machine: row, token });
  } catch (error) {
    if (error instanceof ClaimLost) throw error;
    app.log.warn({ err: error, machine_id: machine.id }, 'a failed create is left to the reconciler');
    app.reconcileSoon();
  }
}

/**
 * Removes a discarded machine from its host, then its row and its reservation. A root volume that it was to be made from
 * is given back; one whose disk is lost is found as such by the reconciler.
 */
export async function discard(app: App, { machine, token }: Claim): Promise<void> {
  const client = app.hosts.client(machine.host_id);
  const keep = hasRootVolumeToReturn(machine) ? machine.root_volume_id : undefined;
  try {
    await client.deleteMachine(machine.id, machine.generation, keep);
  } catch (error) {
    const isLost = keep !== undefined && error instanceof ServiceError && error.code === 'not_found';
    if (!isLost) throw error;
  }
  await deleteRow(app, { machine, token }, await sizeOfReturned(app, machine));
}
