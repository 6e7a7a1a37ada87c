// The query string of the list of machines: filters, sorting and the open form for a new machine. It survives a reload
// and can be shared.
import { MACHINE_STATES, type MachineState } from '@sandbar/contract/machine-states.ts';

export type MachineSearch = {
  state?: MachineState;
  q?: string;
  sort?: 'name' | 'state' | 'created';
  desc?: boolean;
  /** The form for a new machine is open. */
  new?: boolean;
  /** What the new machine boots from, and the id of that or the name of the image. */
  boot?: Source;
  from?: string;
};

export const SORTS = ['name', 'state', 'created'] as const;
/** What a new machine can boot from. */
export const SOURCES = ['image', 'snapshot', 'disk'] as const;
export type Source = (typeof SOURCES)[number];

/** Reads the query string. Unknown or invalid parameters are dropped, so an old link still opens the page. */
export function machineSearch(search: Record<string, unknown>): MachineSearch {
  const state = MACHINE_STATES.find((known) => known === search.state);
  const sort = SORTS.find((known) => known === search.sort);
  const boot = SOURCES.find((known) => known === search.boot);
  return {
    ...(state ? { state } : {}),
    ...(typeof search.q === 'string' && search.q !== '' ? { q: search.q } : {}),
    ...(sort ? { sort } : {}),
    ...(search.desc === true ? { desc: true } : {}),
    ...(search.new === true ? { new: true } : {}),
    ...(boot ? { boot } : {}),
    ...(typeof search.from === 'string' && search.from !== '' ? { from: search.from } : {}),
  };
}
