// The list of volumes. The URL holds its filters.
import { VOLUME_KINDS, VOLUME_STATES } from '@sandbar/contract/volume-states.ts';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import type { Schemas } from '../api/client.ts';
import { useLoadMachines } from '../machines/machines-query.ts';
import { samplesOf } from '../machines/samples.ts';
import { quotasQuery } from '../quotas/quotas-query.ts';
import { ActionStatus } from '../ui/actions.tsx';
import { Button } from '../ui/button.tsx';
import { CodeSample } from '../ui/code-sample.tsx';
import { DataTable } from '../ui/data-table.tsx';
import filterStyles from '../ui/filters.module.css';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import { NewVolume } from './new-volume.tsx';
import { VOLUME_COLUMNS } from './volume-columns.tsx';
import { reasonAgainstNewVolume } from './volume-room.ts';
import { volumesQuery } from './volumes-query.ts';
import { type VolumesSearch, volumesSearch } from './volumes-search.ts';

const route = getRouteApi('/signed-in/volumes');
type Volume = Schemas['Volume'];

export function VolumesPage() {
  // Checked again, because the sign-in leads here with parameters of its link that the router has not checked.
  const search = volumesSearch(route.useSearch());
  const navigate = route.useNavigate();
  const change = (next: VolumesSearch) => void navigate({ search: next, replace: true });
  const volumes = useQuery(volumesQuery);
  // Loads the names and states of the machines for the rows.
  useLoadMachines();
  const { data: quotas } = useQuery(quotasQuery);
  const { new: isNew = false, ...filters } = search;
  return (
    <>
      <PageHead
        title="Volumes"
        count={volumes.data?.length}
        actions={
          <Button
            kind="primary"
            reason={reasonAgainstNewVolume(quotas)}
            onClick={() => change({ ...filters, new: true })}
          >
            New volume
          </Button>
        }
      />
      {volumes.data?.length === 0 ? null : <Filters search={search} onChange={change} />}
      <ActionStatus scope="volumes" />
      <QueryGate query={volumes} what="volumes">
        {(all) => (
          <DataTable
            label="Volumes"
            rows={all.filter(matches(search))}
            columns={VOLUME_COLUMNS}
            idOf={({ id }) => id}
            empty={all.length === 0 ? <NoVolumes /> : <NoMatch onClear={() => change({})} />}
          />
        )}
      </QueryGate>
      <NewVolume open={isNew} onClose={() => change(filters)} />
    </>
  );
}

const matches =
  ({ kind, state }: VolumesSearch) =>
  (volume: Volume): boolean =>
    (kind === undefined || volume.kind === kind) && (state === undefined || volume.state === state);

function Filters({ search, onChange }: { search: VolumesSearch; onChange: (next: VolumesSearch) => void }) {
  const { kind, state } = search;
  const set = (next: { kind?: string | undefined; state?: string | undefined }) => {
    const kindNow = VOLUME_KINDS.find((known) => known === next.kind);
    const stateNow = VOLUME_STATES.find((known) => known === next.state);
    onChange({ ...(kindNow ? { kind: kindNow } : {}), ...(stateNow ? { state: stateNow } : {}) });
  };
  return (
    <search className={filterStyles.filters}>
      <label>
        Kind
        <select value={kind ?? ''} onChange={({ target }) => set({ kind: target.value, state })}>
          <option value="">Every kind</option>
          <option value="data">Data volumes</option>
          <option value="root">Kept root disks</option>
        </select>
      </label>
      <label>
        State
        <select value={state ?? ''} onChange={({ target }) => set({ kind, state: target.value })}>
          <option value="">Every state</option>
          {VOLUME_STATES.map((known) => (
            <option key={known}>{known}</option>
          ))}
        </select>
      </label>
    </search>
  );
}

function NoVolumes() {
  const body = { name: 'data', size_gb: 10 };
  return (
    <>
      <p>There are no volumes yet. A volume is a disk that outlives its machine. Create one with any of these:</p>
      <CodeSample
        samples={samplesOf({
          origin: location.origin,
          method: 'POST',
          path: '/v1/volumes',
          body,
          cli: 'sandbar volume create --name data --size 10',
          typescript: "const volume = await sandbar.volumes.create({ name: 'data', size_gb: 10 });",
        })}
      />
    </>
  );
}

function NoMatch({ onClear }: { onClear: () => void }) {
  return (
    <>
      <p>No volume matches the filters.</p>
      <Button onClick={onClear}>Clear the filters</Button>
    </>
  );
}
