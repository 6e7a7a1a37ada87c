// What may be done with a volume in its present state, and why not. The server decides by the same tables of the
// contract.
import { VOLUME_STATE_TABLE, type VolumeAction } from '@sandbar/contract/volume-states.ts';
import type { Schemas } from '../api/client.ts';
import { reasonAgainst } from '../machines/actions.ts';

type Volume = Pick<Schemas['Volume'], 'kind' | 'state' | 'machine_id' | 'error'>;
type Machine = Pick<Schemas['Machine'], 'state' | 'operation'>;

/** Why the action cannot be done now, as a sentence; undefined when it can. `machine`: the one the volume is attached to. */
export function reasonAgainstVolume(
  volume: Volume,
  action: VolumeAction,
  machine: Machine | undefined,
): string | undefined {
  if (action === 'attach' && volume.kind === 'root') {
    return 'It is the root disk of a deleted machine. Make a machine that boots from it.';
  }
  if (action === 'detach' && volume.machine_id === null) return 'It is not attached.';
  if (action === 'delete' && volume.machine_id !== null) return 'It is attached: detach it first.';
  if (!VOLUME_STATE_TABLE[volume.state][action]) {
    return reasonOfState(volume);
  }
  return action === 'detach' && machine ? reasonAgainst(machine, 'detach') : undefined;
}

/** Why no machine can be made that boots from the root disk; undefined when one can. */
export const reasonAgainstBoot = (volume: Volume): string | undefined =>
  volume.state === 'available' ? undefined : reasonOfState(volume);

const reasonOfState = ({ state, error }: Volume): string =>
  state === 'error' ? `It is in error: ${error ?? 'no reason is known.'}` : `It is ${state} already.`;
