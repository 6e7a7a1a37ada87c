// The tab "volumes" of a machine: the data volumes that it has, and those that can be attached.
import { queryOptions, useQuery } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { POLL_MS } from '../../api/query-client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import { Problem } from '../../machines/problem.tsx';
import { samplesOf } from '../../machines/samples.ts';
import { useAction } from '../../machines/use-action.ts';
import { Button } from '../../ui/button.tsx';
import { CodeSample } from '../../ui/code-sample.tsx';
import list from '../list.module.css';
import { AttachVolume } from './attach-volume.tsx';

type Volume = Schemas['Volume'];

const dataVolumesQuery = queryOptions({
  queryKey: ['volumes', 'data'],
  queryFn: async () =>
    (await unwrap(api.GET('/v1/volumes', { params: { query: { kind: 'data' } } }))).volumes as Volume[],
  refetchInterval: POLL_MS,
});

export function VolumesTab({ machine }: { machine: Schemas['Machine'] }) {
  const { data: volumes, error } = useQuery(dataVolumesQuery);
  if (volumes === undefined) return error ? <Problem error={error} /> : <p role="status">Loading volumes…</p>;
  const attached = volumes.filter(({ machine_id }) => machine_id === machine.id);
  const available = volumes.filter(({ state }) => state === 'available');
  return (
    <div className={list.page}>
      <AttachVolume machine={machine} available={available} />
      {attached.length === 0 ? (
        <NoVolumes machineId={machine.id} />
      ) : (
        <ul className={list.list} aria-label="Attached volumes">
          {attached.map((volume) => (
            <AttachedVolume key={volume.id} volume={volume} machine={machine} />
          ))}
        </ul>
      )}
    </div>
  );
}

function AttachedVolume({ volume, machine }: { volume: Volume; machine: Schemas['Machine'] }) {
  const detach = useAction(() => unwrap(api.POST('/v1/volumes/{id}/detach', { params: { path: { id: volume.id } } })));
  return (
    <li className={list.item}>
      <div className={list.text}>
        <bdi>{volume.name || volume.id}</bdi>
        <span className={list.muted}>
          {volume.size_gb} GiB at <bdi>{volume.mount_path}</bdi>
        </span>
        {volume.error === null ? null : <bdi className={list.bad}>{volume.error}</bdi>}
        <Problem error={detach.error} />
      </div>
      <Button
        busy={detach.isPending}
        reason={reasonAgainst(machine, 'detach')}
        aria-label={`Detach ${volume.name || volume.id}`}
        onClick={() => detach.run(undefined)}
      >
        {detach.isPending ? 'Detaching…' : 'Detach'}
      </Button>
    </li>
  );
}

function NoVolumes({ machineId }: { machineId: string }) {
  return (
    <div className={list.empty}>
      <p>The machine has no volumes. Attach one above, or with any of these:</p>
      <CodeSample
        samples={samplesOf({
          origin: location.origin,
          method: 'POST',
          path: '/v1/volumes/VOLUME/attach',
          body: { machine_id: machineId, mount_path: '/data' },
          cli: `sandbar volume attach VOLUME ${machineId} --path /data`,
          typescript: `await sandbar.volumes.attach('VOLUME', { machine_id: '${machineId}', mount_path: '/data' });`,
        })}
      />
    </div>
  );
}
