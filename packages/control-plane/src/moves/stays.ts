// Says why a machine or a volume cannot move to another host now. Pure functions.
import type { MachineRow, SnapshotRow, VolumeRow } from '../db/tables.ts';

/**
 * Returns the reason as a sentence, or undefined when the machine can move with its volumes and snapshots. `snapshots`
 * must contain hidden ones too.
 */
export function whyMachineStays(
  { state, error }: Pick<MachineRow, 'state' | 'error'>,
  volumes: readonly Pick<VolumeRow, 'id' | 'state'>[],
  snapshots: readonly Pick<SnapshotRow, 'id' | 'state' | 'error'>[],
): string | undefined {
  if (state === 'error') return `It is in error, and can only be deleted: ${error ?? 'no reason is known.'}`;
  if (state !== 'stopped') return `It is ${state}: only a stopped machine moves.`;
  const oddVolume = volumes.find((volume) => volume.state !== 'attached');
  if (oddVolume) return `Its volume ${oddVolume.id} is ${oddVolume.state}.`;
  const oddSnapshot = snapshots.find((snapshot) => snapshot.state !== 'ready');
  return oddSnapshot && whySnapshotStays(oddSnapshot);
}

/** The files of a snapshot in error may come back on its host, so they must not be left behind and deleted there. */
function whySnapshotStays({ id, state, error }: Pick<SnapshotRow, 'id' | 'state' | 'error'>): string {
  if (state !== 'error') return `Its snapshot ${id} is ${state}.`;
  return `Its snapshot ${id} is in error: delete it first. ${error ?? 'No reason is known.'}`;
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
