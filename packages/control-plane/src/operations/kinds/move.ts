// The move operation: a detached volume, or a stopped machine with its volumes and snapshots, goes to another host. The
// room there is reserved already. The row names the old host until the new one has everything, so a crash at any point
// leaves exactly one host that counts. The old copy is deleted last, by an operation of its own (kinds/remove-copy.ts).
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import type { App } from '../../app.ts';
import type { Tx } from '../../db/database.ts';
import type { HostCopy } from '../../db/tables.ts';
import type { ReceivedCopy } from '../../hosts/client.ts';
import { removeCopies } from '../../moves/copies.ts';
import { copyToHost } from '../../moves/copy-to-host.ts';
import { lockSnapshotsOf } from '../../snapshots/store.ts';
import { lockVolume } from '../../volumes/store.ts';
import { act, type Definition, machineOf, type Recording, type Work } from '../definition.ts';
import { updateClaimed } from '../store.ts';

/** What the hosts answer when a repetition would not help. Everything else, such as a damaged copy, is repeated. */
const REFUSALS: readonly string[] = ['conflict', 'not_found', 'fleet_capacity', 'forbidden', 'validation_error'];

export const MOVE: Definition = {
  act: act(copyAll, record),
  isRefusal: (error) => error instanceof ServiceError && REFUSALS.includes(error.code),
  undo: act(
    async () => undefined,
    async ({ tx, operation }) => removeCopies(tx, operation, targetOf(operation), copiesOf(operation)),
  ),
};

/** The address that the machine has on its new host; null if no machine moves. */
type Copied = { privateIp: string | null };

/** Copies everything. */
async function copyAll(app: App, { claimed, operation }: Work): Promise<Copied> {
  let privateIp: string | null = null;
  for (const copy of copiesOf(operation)) {
    // A move that was cancelled copies nothing more.
    await updateClaimed(app.db, claimed, { undoing: false });
    const received = await copyToHost(app, operation.host_id, targetOf(operation), copy);
    if (copy.kind === 'machine') await checkSnapshots(app, copy.id, received);
    privateIp = received.private_ip ?? privateIp;
  }
  return { privateIp };
}

/**
 * Throws `conflict` when a snapshot of the machine did not arrive. No new one is taken and none is deleted during a move.
 */
async function checkSnapshots({ db }: App, machineId: string, { snapshot_ids = [] }: ReceivedCopy): Promise<void> {
  const rows = await db.selectFrom('snapshots').select('id').where('machine_id', '=', machineId).execute();
  const lost = rows.find(({ id }) => !snapshot_ids.includes(id));
  if (!lost) return;
  throw new ServiceError(
    'conflict',
    `Its snapshot ${lost.id} was not sent: the host does not have it, or one of the two agents is too old.`,
  );
}

/**
 * Writes the new host into the rows. The rooms stay as they are: what was reserved for the copy is now the room of the
 * object, and the room on the old host is that of the copy there.
 */
async function record({ tx, steps, operation, ...recording }: Recording, { privateIp }: Copied): Promise<void> {
  const to = targetOf(operation);
  const left: HostCopy[] = [];
  for (const copy of copiesOf(operation)) {
    if (copy.kind === 'machine') continue;
    const row = await lockVolume(tx, copy.id);
    if (!row) throw new Error(`volume ${copy.id} went while it was being moved`);
    await steps.changeVolume(row, { host_id: to });
    left.push({ ...copy, generation: copy.generation - 1 });
  }
  const copyOfMachine = copiesOf(operation).find(({ kind }) => kind === 'machine');
  if (copyOfMachine) {
    for (const row of await lockSnapshotsOf(tx, copyOfMachine.id)) await steps.changeSnapshot(row, { host_id: to });
    const { isolation } = await tx
      .selectFrom('hosts')
      .select('isolation')
      .where('id', '=', to)
      .executeTakeFirstOrThrow();
    // The address is of the subnet of its host.
    const there = { host_id: to, isolation, private_ip: privateIp };
    await steps.changeMachine(machineOf({ ...recording, operation }), there);
    await tx.updateTable('operations').set({ host_id: to }).where(isExpiryOf(copyOfMachine.id)).execute();
    left.push(copyOfMachine);
  }
  await removeCopies(tx, operation, operation.host_id, left);
  await refuseRemoved(tx, to);
}

/** The expiry of a machine is performed by the replicas that reach its host. */
const isExpiryOf = (machineId: string) =>
  sql<boolean>`machine_id = ${machineId} and kind = 'expire' and finished_at is null`;

/** Locks the host's row, so that the host cannot be removed before this transaction has ended. */
async function refuseRemoved(tx: Tx, hostId: string): Promise<void> {
  const row = await tx
    .selectFrom('hosts')
    .select('removed_at')
    .where('id', '=', hostId)
    .forNoKeyUpdate()
    .executeTakeFirst();
  if (row?.removed_at !== null) throw new Error(`host ${hostId} was removed while something moved to it`);
}

const copiesOf = ({ id, args }: Work['operation']): HostCopy[] => {
  if (!args.copies) throw new Error(`The move ${id} has no copies.`);
  return args.copies;
};

function targetOf({ id, args }: Work['operation']): string {
  if (args.to_host_id === undefined) throw new Error(`The move ${id} has no host to go to.`);
  return args.to_host_id;
}
