// The tab "ports" of a machine: what its programs serve over TCP, and who may use it.
import { queryOptions, useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { POLL_MS } from '../../api/query-client.ts';
import { Badge } from '../../ui/badge.tsx';
import { CodeSample } from '../../ui/code-sample.tsx';
import { columnsFor, DataTable } from '../../ui/data-table.tsx';
import type { Columns } from '../../ui/data-table-row.tsx';
import { AccessButton } from './access-button.tsx';
import { CopyLink } from './copy-link.tsx';
import { type Note, NoteLine } from './note.tsx';
import { OpenPort } from './open-port.tsx';
import { OtherPort } from './other-port.tsx';
import styles from './ports.module.css';
import { portSamples } from './samples.ts';

export type Port = Schemas['Port'];

export const portsQuery = (machineId: string) =>
  queryOptions({
    queryKey: ['ports', machineId],
    queryFn: async ({ signal }): Promise<Port[]> =>
      (await unwrap(api.GET('/v1/machines/{id}/ports', { params: { path: { id: machineId } }, signal }))).ports,
    refetchInterval: POLL_MS,
  });

export function PortsTab({ machine }: { machine: Schemas['Machine'] }) {
  const isRunning = machine.state === 'running';
  const { data: ports, error } = useQuery({ ...portsQuery(machine.id), enabled: isRunning });
  const [note, setNote] = useState<Note>({ text: '' });
  // A new array would make React mount every cell again, and lose the focus and the open dialog.
  const columns = useMemo(() => portColumns(machine.id, setNote), [machine.id]);
  if (!isRunning) {
    return (
      <p role="status" className={styles.notice}>
        Ports need a running machine. It is {machine.state}.
      </p>
    );
  }
  if (!ports && !error) return <p role="status">Loading the ports…</p>;
  return (
    <>
      {error ? (
        <p role="alert" className={styles.problem}>
          <bdi>{error.message}</bdi>
        </p>
      ) : null}
      {ports ? (
        <div className={styles.listing}>
          <DataTable
            label="Ports"
            rows={ports}
            columns={columns}
            idOf={({ port }) => String(port)}
            empty={<NoPorts machineId={machine.id} />}
          />
        </div>
      ) : null}
      {ports?.length ? (
        <p className={styles.hint}>
          Open and Copy link are for HTTP. For any other protocol, run <code>sandbar forward {machine.id} PORT</code> on
          your computer.
        </p>
      ) : null}
      <OtherPort machineId={machine.id} onNote={setNote} />
      <NoteLine note={note} />
    </>
  );
}

const column = columnsFor<Port>();

/** `onNote` shows a line about the last action. */
const portColumns = (machineId: string, onNote: (note: Note) => void): Columns<Port> =>
  column.columns([
    column.accessor('port', { header: 'Port' }),
    column.accessor('process', { header: 'Program', cell: ({ getValue }) => <bdi>{getValue() ?? 'unknown'}</bdi> }),
    column.accessor('protocol', { header: 'Protocol' }),
    column.accessor('access', {
      header: 'Access',
      cell: ({ getValue }) => <Badge tone={getValue() === 'public' ? 'wait' : 'good'}>{getValue()}</Badge>,
    }),
    column.display({
      id: 'actions',
      header: 'Actions',
      cell: ({ row: { original: port } }) => (
        <span className={styles.actions}>
          <OpenPort machineId={machineId} port={port} onNote={onNote} />
          <CopyLink machineId={machineId} port={port} onNote={onNote} />
          <AccessButton machineId={machineId} port={port} onNote={onNote} />
        </span>
      ),
    }),
  ]) as Columns<Port>;

function NoPorts({ machineId }: { machineId: string }) {
  return (
    <>
      <p>No program in this machine listens on a port now. Start one, then open its port here or with any of these:</p>
      <CodeSample samples={portSamples(location.origin, machineId)} />
    </>
  );
}
