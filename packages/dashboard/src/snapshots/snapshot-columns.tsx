// The columns of the list of snapshots.
import type { Schemas } from '../api/client.ts';
import { formatBytes } from '../ui/bytes.ts';
import { columnsFor } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { MachineLink } from '../ui/machine-link.tsx';
import { NameCell, StateCell } from '../ui/resource-cells.tsx';
import { Time } from '../ui/time.tsx';
import { SnapshotMenu } from './snapshot-menu.tsx';

type Snapshot = Schemas['Snapshot'];

const KINDS: Record<Snapshot['kind'], string> = { disk: 'disk', memory: 'disk and memory' };

const column = columnsFor<Snapshot>();
export const SNAPSHOT_COLUMNS: Columns<Snapshot> = column.columns([
  column.accessor('name', { header: 'Name', cell: ({ row }) => <NameCell resource={row.original} /> }),
  column.accessor('state', {
    header: 'State',
    cell: ({ row: { original } }) => (
      <StateCell resource={original} tone={original.state === 'ready' ? 'good' : 'bad'} />
    ),
  }),
  column.accessor('machine_id', { header: 'Of', cell: ({ row }) => <MachineLink id={row.original.machine_id} /> }),
  column.accessor('kind', { header: 'Keeps', cell: ({ row }) => KINDS[row.original.kind] }),
  column.accessor('size_gb', { header: 'Disk', cell: ({ row }) => `${row.original.size_gb} GiB` }),
  column.accessor('stored_bytes', {
    header: 'Stored',
    cell: ({ row: { original } }) => (
      <span title={`${original.stored_bytes} bytes that no earlier snapshot keeps`}>
        {formatBytes(original.stored_bytes)}
      </span>
    ),
  }),
  column.accessor('created_at', { header: 'Created', cell: ({ row }) => <Time at={row.original.created_at} /> }),
  column.display({ id: 'actions', header: '', cell: ({ row }) => <SnapshotMenu snapshot={row.original} /> }),
]) as Columns<Snapshot>;
