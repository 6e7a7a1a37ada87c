// Changes the fields of a machine that its host does not need to know: name, metadata, expiry and what to do on expiry.
import type { MachineUpdate } from '@sandbar/contract/machine.ts';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { setExpiry } from '../operations/expiry.ts';
import { machineIsLeaving } from '../operations/refusals.ts';
import { lockUnfinished } from '../operations/store.ts';
import { machineIsDestroyed, machineNotFound } from './refusals.ts';
import { checkMetadata } from './source.ts';
import { findMachine, lockMachine, type MachineView } from './store.ts';

/**
 * Changes the fields that are present in the request and keeps the others. Throws `validation_error` for metadata that
 * is too large, `not_found` for an absent or destroyed machine, and `conflict` while the machine is being deleted.
 */
export async function updateMachine(
  app: App,
  accountId: string,
  id: string,
  { name, metadata, expires_in_sec, on_expiry }: MachineUpdate,
): Promise<MachineView> {
  if (metadata) checkMetadata(metadata);
  await findMachine(app, accountId, id);
  await inTransaction(app.db, async (tx) => {
    const [machine, unfinished] = await Promise.all([lockMachine(tx, id), lockUnfinished(tx, { machineId: id })]);
    if (!machine) throw machineNotFound();
    if (machine.state === 'destroyed') throw machineIsDestroyed(machine.destroyed_at);
    if (unfinished.some(({ kind }) => kind === 'destroy')) throw machineIsLeaving();
    const set = {
      ...(name === undefined ? {} : { name }),
      ...(metadata === undefined ? {} : { metadata: JSON.stringify(metadata) }),
      ...(on_expiry === undefined ? {} : { on_expiry }),
    };
    if (Object.keys(set).length > 0) await tx.updateTable('machines').set(set).where('id', '=', id).execute();
    if (expires_in_sec !== undefined) await setExpiry(tx, machine, expires_in_sec);
  });
  return findMachine(app, accountId, id);
}
