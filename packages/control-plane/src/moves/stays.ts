// Says why a machine or a volume cannot move to another host now. Pure functions.
import type { MachineRow, VolumeRow } from '../db/tables.ts';

/** A machine, and how many snapshots of it exist, also hidden ones. */
export type StayingMachine = Pick<MachineRow, 'state' | 'error'> & { snapshots: number };

/** Returns the reason as a sentence, or undefined when the machine can move with its volumes. */
export function whyMachineStays(
  { state, error, snapshots }: StayingMachine,
  volumes: readonly Pick<VolumeRow, 'id' | 'state'>[],
): string | undefined {
  if (state === 'error') return `It is in error, and can only be deleted: ${error ?? 'no reason is known.'}`;
  if (state !== 'stopped') return `It is ${state}: only a stopped machine moves.`;
  if (snapshots > 0) return 'It has snapshots, which stay on their host: delete them first.';
  const odd = volumes.find((volume) => volume.state !== 'attached');
  return odd && `Its volume ${odd.id} is ${odd.state}.`;
}

/** Returns the reason as a sentence, or undefined when the volume can move. */
export function whyVolumeStays({
  state,
  error,
  machine_id,
}: Pick<VolumeRow, 'state' | 'error' | 'machine_id'>): string | undefined {
  if (machine_id !== null) return `It is attached to machine ${machine_id}.`;
  if (state === 'error') return `It is in error: ${error ?? 'no reason is known.'}`;
  return state === 'available' ? undefined : `It is ${state}.`;
}
