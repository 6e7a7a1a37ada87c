// The filters of the list of machines: a state, and a text that the name, the id or the metadata contains.
import { MACHINE_STATES, type MachineState } from '@sandbar/contract/machine-states.ts';
import type { Schemas } from '../api/client.ts';
import filterStyles from '../ui/filters.module.css';
import { useUrlText } from '../ui/url-text.ts';
import type { MachineSearch } from './search.ts';

type Props = { search: MachineSearch; onChange: (next: MachineSearch) => void };

/** The API lists destroyed machines only on request, so they are never in this list. */
const LISTED_STATES = MACHINE_STATES.filter((state) => state !== 'destroyed');

export function MachineFilters({ search, onChange }: Props) {
  const { state: _state, q: _q, ...rest } = search;
  const set = (state: MachineState | undefined, q: string) =>
    onChange({ ...rest, ...(state ? { state } : {}), ...(q === '' ? {} : { q }) });
  const text = useUrlText(search.q ?? '', (q) => set(search.state, q));
  return (
    <search className={filterStyles.filters}>
      <label>
        Name, id or metadata
        <input type="search" placeholder="such as team=web" {...text} />
      </label>
      <label>
        State
        <select
          value={search.state ?? ''}
          onChange={({ target }) =>
            set(
              LISTED_STATES.find((known) => known === target.value),
              text.value,
            )
          }
        >
          <option value="">Every state</option>
          {LISTED_STATES.map((state) => (
            <option key={state}>{state}</option>
          ))}
        </select>
      </label>
    </search>
  );
}

/** Whether the machine fits the filters. Metadata is searched as `key=value`. Upper and lower case are the same. */
export function matchesFilters({ state, q = '' }: MachineSearch, machine: Schemas['Machine']): boolean {
  if (state !== undefined && machine.state !== state) return false;
  const pairs = Object.entries(machine.metadata).map(
    ([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return [machine.name, machine.id, ...pairs].some((text) => text.toLowerCase().includes(q.trim().toLowerCase()));
}
