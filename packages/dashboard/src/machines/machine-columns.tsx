// The columns of the list of machines. In a narrow window the shape is below the name, and the age below the state.
import { Link } from '@tanstack/react-router';
import type { Schemas } from '../api/client.ts';
import { columnsFor } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { Time } from '../ui/time.tsx';
import { isolate } from '../ui/visible-text.ts';
import styles from './machines.module.css';
import { StateBadge } from './state-badge.tsx';

type Machine = Schemas['Machine'];

const shapeOf = ({ vcpus, memory_mb, rootfs_size_gb }: Machine): string =>
  `${vcpus} vCPU, ${memory_mb} MiB, ${rootfs_size_gb} GiB`;

function NameLink({ machine: { id, name } }: { machine: Machine }) {
  return (
    <Link
      to="/machines/$machineId"
      params={{ machineId: id }}
      search={{}}
      title={name === '' ? id : `${isolate(name)} (${id})`}
      className={name === '' ? styles.id : styles.name}
    >
      <bdi>{name || `…${id.slice(-12)}`}</bdi>
    </Link>
  );
}

const State = ({ machine }: { machine: Machine }) => (
  <span title={machine.error ?? undefined}>
    <StateBadge machine={machine} />
  </span>
);

const column = columnsFor<Machine>();
export const MACHINE_COLUMNS: Columns<Machine> = column.columns([
  column.accessor('name', { header: 'Name', cell: ({ row }) => <NameLink machine={row.original} /> }),
  column.accessor('state', { header: 'State', cell: ({ row }) => <State machine={row.original} /> }),
  column.display({ id: 'shape', header: 'Shape', cell: ({ row }) => shapeOf(row.original) }),
  column.accessor('stack', { header: 'Stack', cell: ({ getValue }) => <bdi>{getValue()}</bdi> }),
  column.accessor('private_ip', { header: 'Address', cell: ({ getValue }) => <Address of={getValue()} /> }),
  column.accessor('created_at', { id: 'created', header: 'Age', cell: ({ getValue }) => <Time at={getValue()} /> }),
  column.accessor('expires_at', { header: 'Expires', cell: ({ getValue }) => <Expiry at={getValue()} /> }),
]) as Columns<Machine>;

export const NARROW_MACHINE_COLUMNS: Columns<Machine> = column.columns([
  column.accessor('name', {
    header: 'Name',
    cell: ({ row: { original } }) => (
      <div className={styles.stacked}>
        <NameLink machine={original} />
        <small>{shapeOf(original)}</small>
      </div>
    ),
  }),
  column.accessor('state', {
    header: 'State',
    cell: ({ row: { original } }) => (
      <div className={styles.stacked}>
        <State machine={original} />
        <small>
          <Time at={original.created_at} />
        </small>
      </div>
    ),
  }),
]) as Columns<Machine>;

const None = ({ word }: { word: string }) => <span className={styles.none}>{word}</span>;
const Address = ({ of }: { of: string | null }) => (of === null ? <None word="none" /> : <code>{of}</code>);
const Expiry = ({ at }: { at: string | null }) => (at === null ? <None word="never" /> : <Time at={at} />);
