// The second transaction of a create or a start, as one statement: `running`, the end of the claim, and the entry of the
// feed. Nothing else changes there: a provisioning machine holds its memory and its quota already.
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import { activityOf } from '../activity/entries.ts';
import { activityParameter, activityParts } from '../activity/write.ts';
import type { App } from '../app.ts';
import { prepare } from '../db/prepared.ts';
import type { MachineRow } from '../db/tables.ts';
import type { Claim } from './claim.ts';
import { MACHINE_COLUMNS } from './columns.ts';
import { machineNotFound } from './refusals.ts';
import { hasRootVolumeToReturn } from './root-volume.ts';
import { changeState } from './store.ts';

const becoming = (also: string): string => `
  with changed as (
     update machines
     set state = 'running', error = null, isolation = $3, claim_token = null, claim_expires_at = null, started_at = now()
     where id = $1 and claim_token = $2 and state = 'provisioning'
     returning ${MACHINE_COLUMNS}
   ), ${also}${activityParts({ source: 'changed', entries: '$4' })}
   select * from changed`;

const becomeRunning = prepare<MachineRow>('machine_running', becoming(''));
/** The volume that a machine was made from is its disk from now on. */
const becomeRunningFromVolume = prepare<MachineRow>(
  'machine_running_from_volume',
  becoming(`forgotten as (
     delete from volumes using changed
     where volumes.id = changed.root_volume_id and volumes.machine_id = changed.id and volumes.change = 'taking'
   ), `),
);

/** Records that a claimed machine runs, and gives the claim back. Throws `ClaimLost`. */
export async function recordRunning(
  app: App,
  { machine, token }: Claim,
  { isolation }: MachineReport,
): Promise<MachineRow> {
  const entries = activityOf(machine, { ...machine, state: 'running' }, machine.desired_by);
  const become = hasRootVolumeToReturn(machine) ? becomeRunningFromVolume : becomeRunning;
  const [row] = await become(app.db, [machine.id, token, isolation, activityParameter(entries)]);
  if (row) return row;
  // Another state, or another's claim by now.
  const changed = await changeState(app, machine.id, { token }, { to: 'running', error: null, isolation });
  if (!changed) throw machineNotFound();
  return changed;
}
