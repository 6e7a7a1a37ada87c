// The list of machines. The URL holds its filters and its sorting.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { Suspense, useCallback, useMemo, useState } from 'react';
import type { Schemas } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { lazyPart } from '../ui/lazy-part.ts';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import { BulkBar } from './bulk-bar.tsx';
import { EmulatedNote } from './emulated-note.tsx';
import { MACHINE_COLUMNS, NARROW_MACHINE_COLUMNS } from './machine-columns.tsx';
import { MachineFilters, matchesFilters } from './machine-filters.tsx';
import styles from './machines.module.css';
import { machinesQuery } from './machines-query.ts';
import { createSamples } from './samples.ts';
import { type MachineSearch, SORTS } from './search.ts';
import { nextSort, sortMachines } from './sort.ts';
import { useNarrow } from './use-narrow.ts';

const route = getRouteApi('/signed-in/machines');
const CreatePage = lazyPart(() => import('./create-page.tsx'), 'CreatePage');
type Machine = Schemas['Machine'];

const ROW_PX = 40;
/** A row of a narrow window has two lines. */
const NARROW_ROW_PX = 60;

export function MachinesPage() {
  const { new: isCreating } = route.useSearch();
  if (!isCreating) return <MachinesList />;
  return (
    <Suspense>
      <CreatePage />
    </Suspense>
  );
}

function MachinesList() {
  const search = route.useSearch();
  const machines = useQuery(machinesQuery);
  return (
    <>
      <PageHead
        title="Machines"
        count={machines.data?.length}
        actions={
          <Link from="/machines" to="." search={{ ...search, new: true }} className={styles.create}>
            Create a machine
          </Link>
        }
      >
        {machines.data?.some(({ isolation }) => isolation === 'emulated') ? <EmulatedNote /> : null}
      </PageHead>
      <QueryGate query={machines} what="machines">
        {(all) => <MachinesTable machines={all} search={search} />}
      </QueryGate>
    </>
  );
}

function MachinesTable({ machines, search }: { machines: Machine[]; search: MachineSearch }) {
  const navigate = route.useNavigate();
  const isNarrow = useNarrow();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const shown = useMemo(
    () =>
      sortMachines(
        machines.filter((machine) => matchesFilters(search, machine)),
        search,
      ),
    [machines, search],
  );
  const selected = shown.filter(({ id }) => chosen.has(id));
  const change = (next: MachineSearch) => void navigate({ search: next, replace: true });
  const toggle = useCallback(
    (id: string) =>
      setChosen((before) => new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id])),
    [],
  );
  const toggleAll = () => setChosen(selected.length === shown.length ? new Set() : new Set(shown.map(({ id }) => id)));
  return (
    <>
      {machines.length === 0 ? null : <MachineFilters search={search} onChange={change} />}
      <BulkBar machines={selected} onDone={() => setChosen(new Set())} />
      <DataTable
        // The table reads the height of its rows only when it mounts, so another height needs another key.
        key={isNarrow ? 'narrow' : 'wide'}
        label="Machines"
        rows={shown}
        columns={isNarrow ? NARROW_MACHINE_COLUMNS : MACHINE_COLUMNS}
        rowPx={isNarrow ? NARROW_ROW_PX : ROW_PX}
        idOf={({ id }) => id}
        sort={{ by: search.sort ?? 'created', isDescending: search.desc ?? search.sort === undefined }}
        sortable={SORTS}
        onSort={(by) => change(nextSort(search, by))}
        selection={{ ids: new Set(selected.map(({ id }) => id)), toggle, toggleAll }}
        empty={machines.length === 0 ? <NoMachines /> : <NoMatch onClear={() => change(withoutFilters(search))} />}
      />
    </>
  );
}

const withoutFilters = ({ state: _state, q: _q, ...rest }: MachineSearch): MachineSearch => rest;

function NoMachines() {
  return (
    <Empty samples={createSamples(location.origin, {})}>There are no machines yet. Create one with any of these:</Empty>
  );
}

function NoMatch({ onClear }: { onClear: () => void }) {
  return (
    <div className={styles.noMatch}>
      <span>No machine matches the filters.</span>
      <Button onClick={onClear}>Clear the filters</Button>
    </div>
  );
}
