// The columns of the list of volumes.
import type { VolumeState } from '@sandbar/contract/volume-states.ts';
import type { Schemas } from '../api/client.ts';
import type { Tone } from '../ui/badge.tsx';
import styles from '../ui/clipped.module.css';
import { columnsFor } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { MachineLink } from '../ui/machine-link.tsx';
import { NameCell, StateCell } from '../ui/resource-cells.tsx';
import { Time } from '../ui/time.tsx';
import { VolumeMenu } from './volume-menu.tsx';

type Volume = Schemas['Volume'];

const TONES: Record<VolumeState, Tone> = { available: 'quiet', attached: 'good', error: 'bad' };
const KINDS: Record<Volume['kind'], string> = { data: 'data', root: 'kept root disk' };

const column = columnsFor<Volume>();
export const VOLUME_COLUMNS: Columns<Volume> = column.columns([
  column.accessor('name', { header: 'Name', cell: ({ row }) => <NameCell resource={row.original} /> }),
  column.accessor('state', {
    header: 'State',
    cell: ({ row: { original } }) => <StateCell resource={original} tone={TONES[original.state]} />,
  }),
  column.accessor('size_gb', { header: 'Size', cell: ({ getValue }) => `${getValue()} GiB` }),
  column.accessor('kind', { header: 'Kind', cell: ({ row: { original } }) => KINDS[original.kind] }),
  column.accessor('machine_id', {
    header: 'Machine',
    cell: ({ row: { original } }) => (original.machine_id === null ? '' : <MachineLink id={original.machine_id} />),
  }),
  column.accessor('mount_path', {
    header: 'Mounted at',
    cell: ({ row: { original } }) => (
      <bdi className={styles.clipped} title={original.mount_path ?? undefined}>
        {original.mount_path}
      </bdi>
    ),
  }),
  column.accessor('created_at', { header: 'Created', cell: ({ row }) => <Time at={row.original.created_at} /> }),
  column.display({ id: 'actions', header: '', cell: ({ row }) => <VolumeMenu volume={row.original} /> }),
]) as Columns<Volume>;
