// A volume comes to a machine or leaves it, under that machine's claim:
//
//   available --begin--> available, attaching --host has it--> attached
//                             \--refused--> available, detaching --host has it not--> available
//   attached  --begin--> attached, detaching --host has it not--> available
//                             \--busy-----> attached, attaching --host has it------> attached
//
// `change` says what the host is to be brought to, `state` where it began, so whoever finds the row knows how it ends. The
// host hears of each step as a new generation of the machine with all the volumes it is to have then. When the host does
// not answer, nobody knows what it did: the row stays as it is, and the reconciler asks again.
import type { NewActivity } from '@sandbar/contract/activity.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { writeActivity } from '../activity/write.ts';
import type { App } from '../app.ts';
import type { Tx } from '../db/database.ts';
import type { MachineRow, VolumeRow } from '../db/tables.ts';
import { type Claim, lockClaimed } from '../machines/claim.ts';
import { ensureOnHost } from '../machines/ensure.ts';
import { noticeEnd } from '../machines/observe.ts';
import { ClaimLost } from '../machines/refusals.ts';
import { FREE, freeState } from './store.ts';

/** A volume on its way, with its machine as the change left it. */
export type Moving = { machine: MachineRow; volume: VolumeRow };

/**
 * Locks a claimed machine's row and its volumes, and lets `decide` write the change. When it does the machine is of a new
 * generation. Throws `ClaimLost` and what `decide` throws, and then nothing was written.
 */
export function beginChange(
  app: App,
  { machine, token }: Claim,
  decide: (tx: Tx, machine: MachineRow) => Promise<VolumeRow | undefined>,
): Promise<Moving | undefined> {
  return app.db.transaction().execute(async (tx) => {
    const locked = await lockClaimed(tx, machine.id, token);
    const volume = await decide(tx, locked);
    if (!volume) return undefined;
    const next = await tx
      .updateTable('machines')
      .set({ generation: sql`generation + 1` })
      .where('id', '=', machine.id)
      .returningAll()
      .executeTakeFirstOrThrow();
    return { machine: next, volume };
  });
}

/** The change of a machine that a crash, or a host that was away, left; there is one at most. */
export function findLeftChange(app: App, machineId: string): Promise<VolumeRow | undefined> {
  return app.db
    .selectFrom('volumes')
    .selectAll()
    .where('machine_id', '=', machineId)
    .where('change', 'in', ['attaching', 'detaching'])
    .executeTakeFirst();
}

/**
 * Brings the host to what was begun, and records it; a machine in error has no VM, and its rows are all there is to
 * change. When the host refuses, it is brought back to what was, and the refusal is thrown.
 */
export async function finishChange(app: App, token: string, { machine, volume }: Moving): Promise<VolumeRow> {
  if (machine.state === 'error') return recordChange(app, token, withoutVm({ machine, volume }));
  try {
    await ensureOnHost(app, machine, machine.state === 'running' ? 'running' : 'stopped');
  } catch (error) {
    if (isRefusal(error) && !isUndo(volume)) await undoChange(app, token, { machine, volume });
    throw error;
  }
  return recordChange(app, token, { machine, volume });
}

/** Its own failure is logged and left to the reconciler: the client gets the refusal that made it necessary. */
async function undoChange(app: App, token: string, { machine, volume }: Moving): Promise<void> {
  try {
    const turned = await beginChange(app, { machine, token }, (tx) => turnBack(tx, volume));
    if (!turned) return;
    // A VM that died of it must not be made anew.
    const present = await noticeEnd(app, { machine: turned.machine, token });
    await finishChange(app, token, { machine: present, volume: turned.volume });
  } catch (err) {
    if (err instanceof ClaimLost) throw err;
    app.log.warn({ err, volume_id: volume.id }, 'a refused change of a volume is left to the reconciler');
    app.reconcileSoon();
  }
}

function turnBack(tx: Tx, { id, change }: VolumeRow): Promise<VolumeRow | undefined> {
  return tx
    .updateTable('volumes')
    .set({ change: change === 'attaching' ? 'detaching' : 'attaching' })
    .where('id', '=', id)
    .where('change', '=', change)
    .returningAll()
    .executeTakeFirst();
}

/** The last transaction: the volume is where it was to be, and the feed says so unless that is where it began. */
function recordChange(app: App, token: string, { machine, volume }: Moving): Promise<VolumeRow> {
  return app.db.transaction().execute(async (tx) => {
    await lockClaimed(tx, machine.id, token);
    const ended =
      volume.change === 'attaching'
        ? { change: null, state: sql<VolumeRow['state']>`case when state = 'error' then 'error' else 'attached' end` }
        : { ...FREE, state: freeState };
    const row = await tx
      .updateTable('volumes')
      .set(ended)
      .where('id', '=', volume.id)
      .where('machine_id', '=', machine.id)
      .where('change', 'is not', null)
      .returningAll()
      .executeTakeFirst();
    if (!row) throw new ClaimLost();
    if (!isUndo(volume)) await writeActivity(tx, row.account_id, [entryOf(machine.id, volume)]);
    return row;
  });
}

function entryOf(machineId: string, { id, change }: VolumeRow): NewActivity {
  const action = change === 'attaching' ? 'volume.attached' : 'volume.detached';
  return { action, actor: 'user', machineId, metadata: { volume_id: id } };
}

/** What becomes of a change when the machine's VM is gone for good: a detach is done, an attach cannot be. */
function withoutVm({ machine, volume }: Moving): Moving {
  const isOver = volume.state === 'available' && volume.change === 'attaching';
  return { machine, volume: isOver ? { ...volume, change: 'detaching' } : volume };
}

/** Whether the change brings the volume back to where it was. */
const isUndo = ({ state, change }: VolumeRow): boolean => (state === 'available') === (change === 'detaching');

/** Whether the host said no, as opposed to nothing, and the claim is the caller's still. */
const isRefusal = (error: unknown): boolean =>
  error instanceof ServiceError && !(error instanceof ClaimLost) && error.code !== 'host_unavailable';
