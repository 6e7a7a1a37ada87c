// Machines that are not what they should be and that nobody works on: the remains of a crash, of a host that was away, or
// of an undo that failed. Each is claimed like any operation does, so two replicas never work on the same one.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { MachineRow } from '../db/tables.ts';
import { type Claim, claimIsFree, holdClaim, tryClaim } from '../machines/claim.ts';
import { discard, finishCreate } from '../machines/create.ts';
import { finishDestroy } from '../machines/destroy.ts';
import { finishStart } from '../machines/start.ts';
import { finishStop } from '../machines/stop.ts';
import { finishRestore } from '../snapshots/restore.ts';

const WIDTH = 8;

/** Finishes, on every host that answers, what is unfinished. */
export async function finishUnfinished(app: App): Promise<void> {
  const connected = app.hosts.connectedIds();
  if (connected.length === 0) return;
  const rows = await app.db
    .selectFrom('machines')
    .select(['id', 'state', 'desired', 'restoring_snapshot_id', 'claim_token'])
    .where('host_id', 'in', connected)
    .where('state', '<>', 'destroyed')
    .where(claimIsFree)
    .execute();
  const unfinished = rows.filter((row) => isUnfinished(row));
  await dropExpiredClaims(
    app,
    rows.filter((row) => row.claim_token !== null && !isUnfinished(row)).map((row) => row.id),
  );
  await forEachBounded(unfinished, WIDTH, (row) => finishOne(app, row.id));
}

/** What a crash left of an operation that changed nothing, or was done. */
async function dropExpiredClaims(app: App, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await app.db
    .updateTable('machines')
    .set({ claim_token: null, claim_expires_at: null })
    .where('id', 'in', [...ids])
    .where(claimIsFree)
    .execute();
}

/** An `error` machine waits for its deletion, whatever was desired before. */
export function isUnfinished({
  state,
  desired,
  restoring_snapshot_id,
}: Pick<MachineRow, 'state' | 'desired' | 'restoring_snapshot_id'>): boolean {
  if (state === 'destroyed') return false;
  if (desired === 'destroyed' || desired === 'discarded') return true;
  if (state === 'error') return false;
  return state !== desired || restoring_snapshot_id !== null;
}

/** Takes the claim of a machine and finishes what is unfinished of it; a failure is logged and left to a later pass. */
export async function finishOne(app: App, id: string): Promise<void> {
  const claim = await tryClaim(app, id);
  if (!claim) return;
  try {
    await holdClaim(app, claim, async () => {
      if (isUnfinished(claim.machine)) await finish(app, claim);
    });
    app.log.info({ machine_id: id, desired: claim.machine.desired }, 'the reconciler finished a machine');
  } catch (error) {
    const code = error instanceof ServiceError ? error.code : undefined;
    app.log.warn({ err: error, machine_id: id, code }, 'the reconciler could not finish a machine yet');
  }
}

async function finish(app: App, claim: Claim): Promise<void> {
  const { desired, started_at, restoring_snapshot_id } = claim.machine;
  if (desired === 'discarded') await discard(app, claim);
  else if (desired === 'destroyed') await finishDestroy(app, claim);
  else if (restoring_snapshot_id !== null) await finishRestore(app, claim);
  else if (desired === 'stopped') await finishStop(app, claim);
  else if (started_at === null) await finishCreate(app, claim);
  else await finishStart(app, claim);
}
