// The claim of a volume's create: while it is renewed the create lives, and nobody undoes it. As with a machine's claim
// (machines/claim.ts) every write names its token, so a create that lost it changes nothing any more.
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { claimIsFree, freshClaim, newToken } from '../machines/claim.ts';

export type VolumeClaim = { token: string; volume: VolumeRow };

/** Takes the claim of a volume that is being created and that nobody works on. */
export async function tryClaimVolume(app: App, id: string): Promise<VolumeClaim | undefined> {
  const token = newToken();
  const volume = await app.db
    .updateTable('volumes')
    .set(freshClaim(app, token))
    .where('id', '=', id)
    .where('change', '=', 'creating')
    .where(claimIsFree)
    .returningAll()
    .executeTakeFirst();
  return volume && { token, volume };
}

/** Whether the create is still under way, and the caller's, which it stays for another while. */
export async function renewVolumeClaim(app: App, { token, volume }: VolumeClaim): Promise<boolean> {
  const result = await app.db
    .updateTable('volumes')
    .set(freshClaim(app, token))
    .where('id', '=', volume.id)
    .where('change', '=', 'creating')
    .where('claim_token', '=', token)
    .executeTakeFirst();
  return result.numUpdatedRows === 1n;
}

/** Lets the reconciler have what the caller gives up. Never throws: the claim expires by itself. */
export async function freeVolumeClaim(app: App, { token, volume }: VolumeClaim): Promise<void> {
  await app.db
    .updateTable('volumes')
    .set({ claim_token: null, claim_expires_at: null })
    .where('id', '=', volume.id)
    .where('claim_token', '=', token)
    .execute()
    .catch((err: unknown) => app.log.debug({ err, volume_id: volume.id }, 'a claim could not be given back'));
}

/** Runs `work` while renewing the claim. */
export async function holdVolumeClaim<T>(app: App, claim: VolumeClaim, work: () => Promise<T>): Promise<T> {
  const renewal = setInterval(() => {
    renewVolumeClaim(app, claim).catch((err: unknown) =>
      app.log.warn({ err, volume_id: claim.volume.id }, 'a claim could not be renewed'),
    );
  }, app.config.timing.claimRenewMs);
  try {
    return await work();
  } finally {
    clearInterval(renewal);
  }
}
