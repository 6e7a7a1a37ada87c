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
import type { MachineRow } from '../db/tables.ts';
import { machineNotFound } from './refusals.ts';
import { LEAVING } from './transition.ts';

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

/**
 * Takes the claim whoever holds it and wants the machine destroyed, as a new generation. Undefined when it is being
 * destroyed (or discarded) already, or is not there.
 */
export async function claimForDestroy(app: App, id: string, keepVolumeId: string | null): Promise<Claim | undefined> {
  const token = newToken();
  const machine = await app.db
    .updateTable('machines')
    .set({
      ...freshClaim(app, token),
      desired: 'destroyed',
      desired_by: 'user',
      keep_volume_id: keepVolumeId,
      generation: sql`generation + 1`,
    })
    .where('id', '=', id)
    .where('desired', 'not in', LEAVING)
    .returningAll()
    .executeTakeFirst();
  return machine && { token, machine };
}

const POLL_MS = 25;

/** Waits for the claim. Throws `not_found` when the machine went, `conflict` when it stays busy (60 s). */
export async function waitForClaim(app: App, id: string): Promise<Claim> {
  const deadline = performance.now() + app.config.timing.claimWaitMs;
  for (let pauseMs = POLL_MS; ; pauseMs = Math.min(pauseMs * 2, 250)) {
    const claim = await tryClaim(app, id);
    if (claim) return claim;
    const row = await app.db.selectFrom('machines').select('id').where('id', '=', id).executeTakeFirst();
    if (!row) throw machineNotFound();
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
