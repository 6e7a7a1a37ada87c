// The claim: the lease of the one operation that works on a machine now.
//
//   free --take--> held --renewed every 3 s--> held --release or the final change of state--> free
//                    \--nobody renews for 10 s (crash)--> expired = free       \--forced by a delete--> held by another
//
// Holding it is no lock that blocks: every write of an operation names its token, so an operation that lost its claim
// (it stalled, or the machine was deleted) fails at its next write instead of overwriting what came after.
import { randomUUID } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { Tx } from '../db/database.ts';
import { prepare, transact } from '../db/prepared.ts';
import type { MachineRow } from '../db/tables.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { MACHINE_COLUMNS } from './columns.ts';
import { ClaimLost, machineNotFound } from './refusals.ts';
import { isLeaving, LEAVING } from './transition.ts';

export type Claim = { token: string; machine: MachineRow };

/** True for rows that nobody works on, by the database's clock. */
export const claimIsFree = sql<boolean>`(claim_token is null or claim_expires_at < now())`;

/** The columns of a fresh claim of this replica. */
export function freshClaim(app: App, token: string) {
  return {
    claim_token: token,
    claim_expires_at: sql<Date>`now() + ${app.config.timing.claimTtlMs} * interval '1 millisecond'`,
  };
}

export const newToken = (): string => randomUUID();

/** The row of a claimed machine, locked. Throws `ClaimLost` when the claim is another's by now. */
export async function lockClaimed(tx: Tx, id: string, token: string): Promise<MachineRow> {
  const row = await tx
    .selectFrom('machines')
    .selectAll()
    .where('id', '=', id)
    .where('claim_token', '=', token)
    .forNoKeyUpdate()
    .executeTakeFirst();
  if (!row) throw new ClaimLost();
  return row;
}

/** Takes the claim if it is free now. */
export async function tryClaim(app: App, id: string): Promise<Claim | undefined> {
  const token = newToken();
  const machine = await app.db
    .updateTable('machines')
    .set(freshClaim(app, token))
    .where('id', '=', id)
    .where(claimIsFree)
    .returningAll()
    .executeTakeFirst();
  return machine && { token, machine };
}

const lockMachine = prepare<Pick<MachineRow, 'desired'>>(
  'lock_machine_for_destroy',
  'select desired from machines where id = $1 for no key update',
);
const wantDestroyed = prepare<MachineRow>(
  'want_machine_destroyed',
  `update machines
   set claim_token = $2, claim_expires_at = now() + $3::int * interval '1 millisecond', desired = 'destroyed',
     desired_by = 'user', generation = generation + 1,
     keep_volume_id = case when started_at is null then coalesce(root_volume_id, $4::uuid) else $4::uuid end
   where id = $1 and desired <> all ($5::text[])
     and ($6::boolean or not exists (
       select from snapshots where snapshots.machine_id = machines.id and change is distinct from 'deleting'))
   returning ${MACHINE_COLUMNS}`,
);

/** `keepVolumeId`: the volume that the root disk becomes. `deleteSnapshots`: its snapshots go with it. */
export type DestroyWish = { keepVolumeId: string | null; deleteSnapshots: boolean };

/**
 * Takes the claim whoever holds it and wants the machine destroyed, as a new generation; a root volume that it never ran
 * from is kept in any case. Undefined when it is being destroyed (or discarded) already, or is not there; `has snapshots`
 * when those are not to be deleted, and then nothing changes. A snapshot that is being made counts: its row is written
 * under the lock that the first statement waits for.
 */
export async function claimForDestroy(
  app: App,
  id: string,
  { keepVolumeId, deleteSnapshots }: DestroyWish,
): Promise<Claim | 'has snapshots' | undefined> {
  const token = newToken();
  const values = [id, token, app.config.timing.claimTtlMs, keepVolumeId, [...LEAVING], deleteSnapshots];
  const [[locked], [machine]] = await transact(app.db, [lockMachine, [id]], [wantDestroyed, values]);
  if (machine) return { token, machine };
  return locked && !isLeaving(locked.desired) ? 'has snapshots' : undefined;
}

const POLL_MS = 25;

/** Takes the claim if it is free now, and nothing is left to be finished that would come in between. */
async function tryClaimForOperation(app: App, id: string): Promise<Claim | undefined> {
  const token = newToken();
  const machine = await app.db
    .updateTable('machines')
    .set(freshClaim(app, token))
    .where('id', '=', id)
    .where(claimIsFree)
    .where((is) => is.or([is('restoring_snapshot_id', 'is', null), is('desired', 'in', LEAVING)]))
    .returningAll()
    .executeTakeFirst();
  return machine && { token, machine };
}

/**
 * Waits for the claim, and for the end of a restore that was left half done. Throws `not_found` when the machine went,
 * `conflict` when it stays busy (60 s), `host_unavailable` when only its host could end what is half done.
 */
export async function waitForClaim(app: App, id: string): Promise<Claim> {
  const deadline = performance.now() + app.config.timing.claimWaitMs;
  for (let pauseMs = POLL_MS; ; pauseMs = Math.min(pauseMs * 2, 250)) {
    const claim = await tryClaimForOperation(app, id);
    if (claim) return claim;
    const row = await app.db
      .selectFrom('machines')
      .select(['host_id', 'restoring_snapshot_id'])
      .where('id', '=', id)
      .executeTakeFirst();
    if (!row) throw machineNotFound();
    const isAway = row.restoring_snapshot_id !== null && !app.hosts.connectedIds().includes(row.host_id);
    if (isAway) throw new HostUnavailable(false);
    if (performance.now() > deadline || app.closing.aborted) {
      throw new ServiceError('conflict', 'The machine is busy with another operation. Retry later.');
    }
    await sleep(pauseMs, app.closing);
  }
}

/** Runs `work` while renewing the claim, and gives it back at the end whatever happened. */
export async function holdClaim<T>(app: App, claim: Claim, work: (claim: Claim) => Promise<T>): Promise<T> {
  const mine = () =>
    app.db.updateTable('machines').where('id', '=', claim.machine.id).where('claim_token', '=', claim.token);
  const renewal = setInterval(() => {
    mine()
      .set(freshClaim(app, claim.token))
      .execute()
      .catch((error: unknown) => app.log.warn({ err: error }, 'a claim could not be renewed'));
  }, app.config.timing.claimRenewMs);
  let gaveBack = false;
  try {
    const result = await work(claim);
    gaveBack = isFree(result);
    return result;
  } finally {
    clearInterval(renewal);
    if (!gaveBack) {
      await mine()
        .set({ claim_token: null, claim_expires_at: null })
        .execute()
        // It expires by itself.
        .catch((error: unknown) => app.log.debug({ err: error }, 'a claim could not be given back'));
    }
  }
}

/** Whether a result is a machine whose final change of state gave the claim back. */
const isFree = (result: unknown): boolean =>
  typeof result === 'object' && result !== null && 'claim_token' in result && result.claim_token === null;

/** Waits for the machine's claim and runs `work` with its fresh row. Throws what waiting and `work` throw. */
export async function withMachineClaim<T>(app: App, id: string, work: (claim: Claim) => Promise<T>): Promise<T> {
  return holdClaim(app, await waitForClaim(app, id), work);
}
