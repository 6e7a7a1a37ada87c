// Create of a data volume: charge and row (one transaction), its disk on a host, then the volume is there (a second
// transaction). What fails in between is undone here; what dies in between the reconciler undoes, which runs
// `discardVolume` as well.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { VolumeCreate } from '@sandbar/contract/volume.ts';
import { v7 as uuidv7 } from 'uuid';
import { getAccount, lockAccount } from '../accounts/store.ts';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import type { AccountRow, HostRow, VolumeRow } from '../db/tables.ts';
import { HostUnavailable } from '../hosts/client.ts';
import { listHosts } from '../hosts/store.ts';
import { freshClaim, newToken } from '../machines/claim.ts';
import { admitsAccount, emulatedOnly } from '../machines/tenancy.ts';
import { chargeUnchecked, checkQuota, releaseQuota } from '../quotas/charge.ts';
import { checkBalance } from '../wallet/check.ts';
import { freeVolumeClaim, holdVolumeClaim, renewVolumeClaim, type VolumeClaim } from './claim.ts';
import { rankHostsForVolume } from './placement.ts';
import { volumeAmounts } from './store.ts';

/**
 * Makes an empty data volume. Throws `forbidden`, `insufficient_balance`, `quota_exceeded`, `fleet_capacity`,
 * `host_unavailable` or what the host refused with; after a throw nothing of it is left, or soon will be.
 */
export async function createVolume(
  app: App,
  accountId: string,
  { name = '', size_gb }: VolumeCreate,
): Promise<VolumeRow> {
  const [account, hosts] = await Promise.all([getAccount(app.db, accountId), listHosts(app.db)]);
  const admitting = hosts.filter((host) => admitsAccount(app, host, account));
  if (hosts.length > 0 && admitting.length === 0) throw emulatedOnly();
  await checkBalance(app, account);
  checkQuota(account, volumeAmounts({ kind: 'data', size_gb }));
  const claim = await admitVolume(app, account, chooseHost(app, admitting), { name, size_gb });
  return holdVolumeClaim(app, claim, () => finishCreate(app, claim));
}

/** Throws `host_unavailable` when none answers, `fleet_capacity` when none takes new volumes. */
function chooseHost(app: App, hosts: readonly HostRow[]): HostRow {
  const connected = new Set(app.hosts.connectedIds());
  const reachable = hosts.filter((host) => connected.has(host.id));
  if (reachable.length === 0) throw new HostUnavailable(false);
  const [best] = rankHostsForVolume(reachable, app.config.memoryOvercommit);
  if (best) return best;
  throw new ServiceError(
    'fleet_capacity',
    'No host takes new volumes now. This is a limit of the fleet, not a quota of the account: retry later.',
    { retryAfterSec: 10 },
  );
}

/** The first transaction: under the account's lock the quota decides. Throws `quota_exceeded`. */
function admitVolume(
  app: App,
  { id: accountId }: AccountRow,
  host: HostRow,
  request: { name: string; size_gb: number },
): Promise<VolumeClaim> {
  const token = newToken();
  return app.db.transaction().execute(async (tx) => {
    const amounts = volumeAmounts({ kind: 'data', size_gb: request.size_gb });
    checkQuota(await lockAccount(tx, accountId), amounts);
    await chargeUnchecked(tx, accountId, amounts);
    const { claim_token, claim_expires_at } = freshClaim(app, token);
    const volume = await tx
      .insertInto('volumes')
      .values({
        ...request,
        id: uuidv7(),
        account_id: accountId,
        host_id: host.id,
        kind: 'data',
        state: 'available',
        change: 'creating',
        claim_token,
        claim_expires_at,
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    return { token, volume };
  });
}

async function finishCreate(app: App, claim: VolumeClaim): Promise<VolumeRow> {
  const { id, host_id, size_gb } = claim.volume;
  try {
    await app.hosts.client(host_id).ensureVolume(id, size_gb);
    return await recordCreated(app, claim);
  } catch (error) {
    await discardVolume(app, claim).catch(async (err: unknown) => {
      app.log.warn({ err, volume_id: id }, 'a failed create of a volume is left to the reconciler');
      await freeVolumeClaim(app, claim);
      app.reconcileSoon();
    });
    throw error;
  }
}

/** The second transaction. Throws `conflict` when the create was taken for dead meanwhile. */
function recordCreated(app: App, { token, volume }: VolumeClaim): Promise<VolumeRow> {
  return app.db.transaction().execute(async (tx) => {
    const row = await tx
      .updateTable('volumes')
      .set({ change: null, claim_token: null, claim_expires_at: null })
      .where('id', '=', volume.id)
      .where('claim_token', '=', token)
      .returningAll()
      .executeTakeFirst();
    if (!row) throw new ServiceError('conflict', 'The create of the volume took too long and was undone. Try again.');
    await writeActivity(tx, row.account_id, [
      { action: 'volume.created', actor: 'user', metadata: { volume_id: row.id, size_gb: row.size_gb } },
    ]);
    return row;
  });
}

/**
 * Removes a claimed volume that is not made yet from its host, then its row and its charge. Repeating it changes nothing,
 * and one that was made after all stays.
 */
export async function discardVolume(app: App, claim: VolumeClaim): Promise<void> {
  const { token, volume } = claim;
  // The transaction whose answer was lost may have been committed.
  if (!(await renewVolumeClaim(app, claim))) return;
  await app.hosts.client(volume.host_id).deleteVolume(volume.id);
  await app.db.transaction().execute(async (tx) => {
    const row = await tx
      .deleteFrom('volumes')
      .where('id', '=', volume.id)
      .where('claim_token', '=', token)
      .where('change', '=', 'creating')
      .returningAll()
      .executeTakeFirst();
    if (row) await releaseQuota(tx, row.account_id, volumeAmounts(row));
  });
}
