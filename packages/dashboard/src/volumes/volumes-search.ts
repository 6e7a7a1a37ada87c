// The query string of the list of volumes: filters, and whether the form for a new volume is open. Unknown or invalid
// parameters are dropped, so an old link still opens the page.
import { VOLUME_KINDS, VOLUME_STATES, type VolumeKind, type VolumeState } from '@sandbar/contract/volume-states.ts';

export type VolumesSearch = { kind?: VolumeKind; state?: VolumeState; new?: true };

export function volumesSearch(search: Record<string, unknown>): VolumesSearch {
  const kind = VOLUME_KINDS.find((known) => known === search.kind);
  const state = VOLUME_STATES.find((known) => known === search.state);
  return {
    ...(kind ? { kind } : {}),
    ...(state ? { state } : {}),
    ...(search.new === true ? { new: true } : {}),
  };
}
