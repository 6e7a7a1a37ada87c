// Volumes on whose change nobody works: the remains of a crash, or of a host that was away. A create is undone; a volume
// that is coming to a machine or leaving it gets there, or goes back when the host refuses.
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import type { VolumeRow } from '../db/tables.ts';
import { claimIsFree, holdClaim, tryClaim } from '../machines/claim.ts';
import { freeVolumeClaim, holdVolumeClaim, tryClaimVolume } from '../volumes/claim.ts';
import { discardVolume } from '../volumes/create.ts';
import { settleVolumes } from '../volumes/settle.ts';

const WIDTH = 8;

type Unfinished = Pick<VolumeRow, 'id' | 'change' | 'machine_id'>;

/** Finishes, on every host that answers, what is unfinished; what fails is logged and left to a later pass. */
export async function finishVolumeChanges(app: App): Promise<void> {
  const connected = app.hosts.connectedIds();
  if (connected.length === 0) return;
  const rows = await app.db
    .selectFrom('volumes')
    .select(['id', 'change', 'machine_id'])
    .where('host_id', 'in', connected)
    .where('change', 'in', ['creating', 'attaching', 'detaching'])
    .where(claimIsFree)
    .execute();
  await forEachBounded(rows, WIDTH, async (row) => {
    try {
      await finishVolume(app, row);
    } catch (err) {
      app.log.warn({ err, volume_id: row.id }, 'the reconciler could not finish a volume yet');
    }
  });
}

/** Takes the claim that the change is made under, unless somebody has it, and finishes the change. */
export async function finishVolume(app: App, { id, change, machine_id }: Unfinished): Promise<void> {
  if (change === 'creating') {
    const claim = await tryClaimVolume(app, id);
    if (!claim) return;
    // Free for the next pass when it fails.
    await holdVolumeClaim(app, claim, () => discardVolume(app, claim)).finally(() => freeVolumeClaim(app, claim));
    app.log.info({ volume_id: id }, 'the reconciler undid the create of a volume');
  } else if (machine_id !== null) {
    const claim = await tryClaim(app, machine_id);
    if (claim) await holdClaim(app, claim, async () => void (await settleVolumes(app, claim)));
  }
}
