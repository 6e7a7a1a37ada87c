// Brings a claimed machine's rows up to date before anything new is asked of it: what its host saw, and the change of a
// volume that was left half done. The reconciler does nothing else, and an attach or detach does it first.
import type { App } from '../app.ts';
import type { MachineRow } from '../db/tables.ts';
import type { Claim } from '../machines/claim.ts';
import { noticeEnd } from '../machines/observe.ts';
import { ClaimLost } from '../machines/refusals.ts';
import { isSettled } from './attachable.ts';
import { findLeftChange, finishChange } from './change.ts';

/**
 * The machine as it is then. One that is being deleted or that another reconciler's task brings to what it should be is
 * left alone. Throws `ClaimLost`, `host_unavailable`, or what the host refused to undo with.
 */
export async function settleVolumes(app: App, claim: Claim): Promise<MachineRow> {
  if (!isSettled(claim.machine)) return claim.machine;
  const machine = await noticeEnd(app, claim);
  const volume = await findLeftChange(app, machine.id);
  if (!volume) return machine;
  try {
    await finishChange(app, claim.token, { machine, volume });
    app.log.info({ volume_id: volume.id, machine_id: machine.id }, 'a change of a volume was finished');
  } catch (err) {
    // A refusal was undone, and so is settled as well; else it is thrown by what is asked next, or by the next pass.
    if (err instanceof ClaimLost || (await findLeftChange(app, machine.id))) throw err;
    app.log.warn({ err, volume_id: volume.id, machine_id: machine.id }, 'a change of a volume was refused and undone');
  }
  return reread(app, claim);
}

/** The claimed machine as its row is now. Throws `ClaimLost`. */
async function reread(app: App, { machine, token }: Claim): Promise<MachineRow> {
  const row = await app.db
    .selectFrom('machines')
    .selectAll()
    .where('id', '=', machine.id)
    .where('claim_token', '=', token)
    .executeTakeFirst();
  if (!row) throw new ClaimLost();
  return row;
}
