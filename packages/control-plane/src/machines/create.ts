// Create: admit (one transaction), make it run on its host, then say so (a second transaction). What fails in between is
// undone here; what dies in between is found by the reconciler, which runs `finishCreate` or `discard` as well.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { MACHINE_BOUNDS, MACHINE_DEFAULTS, type MachineCreate } from '@sandbar/contract/machine.ts';
import type { TierLimits } from '@sandbar/contract/quota.ts';
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import { listHosts } from '../hosts/store.ts';
import { effectiveLimits } from '../quotas/limits.ts';
import { admitMachine, type CreateRequest } from './admit.ts';
import { type Claim, holdClaim } from './claim.ts';
import { ensureOnHost } from './ensure.ts';
import { findFirst, fingerprintOf } from './idempotency.ts';
import { ClaimLost } from './refusals.ts';
import { recordRunning } from './running.ts';
import { deleteRow, setDesired } from './store.ts';

export type Created = { row: MachineRow; isReplay: boolean };

/**
 * Makes a machine and waits until it runs, or finds the one that an earlier request with the same key made. Throws
 * `validation_error`, `forbidden`, `insufficient_balance`, `quota_exceeded`, `fleet_capacity`, `host_unavailable`, what
 * the host refused with, or `conflict` when it was deleted meanwhile; after a throw nothing of it is left, or soon will be.
 */
export async function createMachine(app: App, accountId: string, body: MachineCreate, key?: string): Promise<Created> {
  const request = completeRequest(body);
  const [account, knownHosts] = await Promise.all([getAccount(app.db, accountId), listHosts(app.db)]);
  checkMachineSize(effectiveLimits(account), request);
  const idempotencyKey = key === undefined ? undefined : { key, fingerprint: fingerprintOf(request) };
  for (let hosts = knownHosts; ; hosts = await listHosts(app.db)) {
    const first = idempotencyKey && (await findFirst(app, accountId, idempotencyKey));
    if (first) return { row: first, isReplay: true };
    const claim = await admitMachine(app, { account, hosts, request, idempotencyKey });
    if (claim) return { row: await holdClaim(app, claim, (held) => finishCreate(app, held)), isReplay: false };
  }
}

/** The per-machine maximum of the tier or the account. Throws `validation_error`: it is no quota. */
function checkMachineSize(limits: TierLimits, { vcpus, memory_mb }: CreateRequest): void {
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

function completeRequest(body: MachineCreate): CreateRequest {
  const metadata = body.metadata ?? {};
  if (Buffer.byteLength(JSON.stringify(metadata)) > MACHINE_BOUNDS.metadataBytes) {
    throw new ServiceError(
      'validation_error',
      `metadata must be at most ${MACHINE_BOUNDS.metadataBytes} bytes as JSON.`,
    );
  }
  return {
    name: body.name ?? '',
    vcpus: body.vcpus ?? MACHINE_DEFAULTS.vcpus,
    memory_mb: body.memory_mb ?? MACHINE_DEFAULTS.memory_mb,
    rootfs_size_gb: body.rootfs_size_gb ?? MACHINE_DEFAULTS.rootfs_size_gb,
    stack: body.stack ?? MACHINE_DEFAULTS.stack,
    metadata,
  };
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

/** Removes a discarded machine from its host, then its row and its reservation. */
export async function discard(app: App, { machine, token }: Claim): Promise<void> {
  await app.hosts.client(machine.host_id).deleteMachine(machine.id, machine.generation);
  await deleteRow(app, machine.id, token);
}
