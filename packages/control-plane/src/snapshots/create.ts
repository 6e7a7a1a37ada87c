// Takes a snapshot of a machine at the request of an account. The request inserts the snapshot's row, which is hidden
// from clients. Then the operation takes the snapshot on the host and makes it visible.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { SnapshotCreate } from '@sandbar/contract/snapshot.ts';
import { v7 as uuidv7 } from 'uuid';
import { lockAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow } from '../db/tables.ts';
import { findKey, goneSince, type IdempotencyKey, idempotencyKeyOf, insertKey } from '../idempotency/keys.ts';
import { type Attempt, type Created, createOnce } from '../idempotency/once.ts';
import { machineNotFound } from '../machines/refusals.ts';
import { checkAction } from '../machines/rules.ts';
import { findMachine } from '../machines/store.ts';
import { requestOperation } from '../operations/request.ts';
import { insertClaimed } from '../operations/store.ts';
import { listAttachedVolumes } from '../volumes/store.ts';
import { checkSnapshotLimit } from './limit.ts';
import { findSnapshot, getVisibleSnapshot, type VisibleSnapshot } from './store.ts';

/**
 * Takes a snapshot of a machine of the account. Returns the snapshot of an earlier request instead if that request had
 * the same idempotency key. Throws `conflict` if that was another request, and `not_found` if its snapshot is deleted.
 *
 * Throws `not_found`, `host_unavailable` or the host's refusal. Throws `conflict` if the machine's state does not allow
 * a snapshot, or if a snapshot with memory is requested while volumes are attached. Throws `quota_exceeded` if the
 * account has the maximum number of snapshots. After an error nothing of the snapshot remains, or the reconciler soon
 * removes it.
 */
export async function createSnapshot(
  app: App,
  accountId: string,
  machineId: string,
  { name = '', memory = false }: SnapshotCreate,
  key?: string,
): Promise<Created<VisibleSnapshot>> {
  const identity = { kind: 'snapshot', machine_id: machineId.toLowerCase(), name, memory };
  const request = { accountId, machineId, name, memory, idempotencyKey: idempotencyKeyOf(key, identity) };
  return createOnce(app, async () => {
    const earlier = await findEarlier(app, request);
    if (earlier) return earlier;
    const id = await takeSnapshot(app, request);
    return id === undefined ? undefined : { row: await findSnapshot(app.db, accountId, id), isReplay: false };
  });
}

type Request = Required<SnapshotCreate> & {
  accountId: string;
  machineId: string;
  idempotencyKey: IdempotencyKey | undefined;
};

/**
 * Returns the snapshot of an earlier request with the same key, or the unfinished operation of that request. Throws
 * `not_found` if the snapshot is deleted.
 */
async function findEarlier({ db }: App, { accountId, idempotencyKey }: Request): Promise<Attempt<VisibleSnapshot>> {
  const first = idempotencyKey && (await findKey(db, accountId, idempotencyKey));
  if (!first) return undefined;
  if (first.operationId !== null) return { underWay: first.operationId };
  const row = await getVisibleSnapshot(db, accountId, first.id);
  if (row) return { row, isReplay: true };
  throw goneSince('snapshot');
}

/**
 * Takes a snapshot and returns its id. Returns undefined when a parallel request with the same idempotency key was
 * faster.
 */
async function takeSnapshot(app: App, request: Request): Promise<string | undefined> {
  const { accountId, name, memory, idempotencyKey } = request;
  const { id: machine_id } = await findMachine(app, accountId, request.machineId);
  const id = uuidv7();
  const question = { kind: 'snapshot', machine_id, volume_id: null, snapshot_id: id } as const;
  const hasBegun = await requestOperation(app, {
    ...question,
    args: {},
    waitMs: app.config.timing.runningWaitMs,
    hasBegun: async (tx) => {
      if (!idempotencyKey) return false;
      // While the account is locked, no other request can insert this key.
      const [, first] = await Promise.all([lockAccount(tx, accountId), findKey(tx, accountId, idempotencyKey)]);
      return first !== undefined;
    },
    begin: async (tx, machine) => {
      if (!machine) throw machineNotFound();
      checkAction(machine.state, memory ? 'snapshot-memory' : 'snapshot');
      if (memory) await checkHasNoVolumes(tx, machine);
      const { account_id, host_id, vcpus, memory_mb, stack, rootfs_size_gb: size_gb } = machine;
      const claimed = await insertClaimed(app, tx, { ...question, account_id, host_id, args: '{}', actor: 'user' });
      await checkSnapshotLimit(tx, account_id, app.config.bounds.snapshotsPerAccount);
      await tx
        .insertInto('snapshots')
        .values({
          ...{ id, account_id, host_id, machine_id, name, size_gb, stack, vcpus, memory_mb },
          kind: memory ? 'memory' : 'disk',
          state: 'creating',
        })
        .execute();
      if (idempotencyKey) await insertKey(tx, account_id, idempotencyKey, { kind: 'snapshot', id });
      return claimed;
    },
  });
  return hasBegun ? id : undefined;
}

/**
 * Throws `conflict` if the machine has attached volumes. The saved memory would contain their mounted file systems, and
 * a machine that resumes from the snapshot does not have these volumes.
 */
async function checkHasNoVolumes(tx: Tx, machine: MachineRow): Promise<void> {
  if ((await listAttachedVolumes(tx, machine.id)).length === 0) return;
  throw new ServiceError('conflict', 'The machine has volumes: detach them first, or take a snapshot without memory.');
}
