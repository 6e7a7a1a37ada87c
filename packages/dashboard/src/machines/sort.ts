// The order of the list of machines.
import type { Schemas } from '../api/client.ts';
import { type MachineSearch, SORTS } from './search.ts';

type Machine = Schemas['Machine'];

const KEYS: Record<NonNullable<MachineSearch['sort']>, (machine: Machine) => string> = {
  name: ({ name, id }) => name || id,
  state: ({ state }) => state,
  created: ({ created_at }) => created_at,
};

/** Newest first unless the URL has another order. Machines that are equal stay in the order of their creation. */
export function sortMachines(machines: readonly Machine[], { sort, desc }: MachineSearch): Machine[] {
  const key = KEYS[sort ?? 'created'];
  const sign = (desc ?? sort === undefined) ? -1 : 1;
  const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  return machines.toSorted((a, b) => sign * compare(key(a), key(b)) || compare(a.created_at, b.created_at));
}

/**
 * The query string after a person pressed the head of a column: ascending, then descending, then newest first again.
 */
export function nextSort({ sort, desc = false, ...rest }: MachineSearch, pressed: string): MachineSearch {
  const next = SORTS.find((known) => known === pressed);
  if (!next) return rest;
  if (sort !== next) return { ...rest, sort: next };
  // Descending by age is the same as newest first.
  return desc || next === 'created' ? rest : { ...rest, sort, desc: true };
}
