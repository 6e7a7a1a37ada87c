// The columns of the list of files.
import { columnsFor } from '../../ui/data-table.tsx';
import type { Columns } from '../../ui/data-table-row.tsx';
import { visibleText } from '../../ui/visible-text.ts';
import type { EntryTask } from './entry-dialogs.tsx';
import { EntryMenu } from './entry-menu.tsx';
import { FileLink } from './file-link.tsx';
import styles from './files.module.css';
import { formatBytes, formatTime } from './format.ts';
import { pathOf } from './path.ts';
import type { FileEntry } from './requests.ts';

const column = columnsFor<FileEntry>();
const KINDS: Record<FileEntry['type'], string> = {
  directory: 'folder',
  file: 'file',
  symlink: 'link',
  other: 'device',
};

/** The name and the size come first, because a narrow screen shows only the first columns. */
export const entryColumns = (
  machineId: string,
  reason: string | undefined,
  onTask: (task: EntryTask) => void,
): Columns<FileEntry> =>
  column.columns([
    column.accessor('name', { header: 'Name', cell: ({ row }) => <NameCell entry={row.original} /> }),
    column.accessor('size', { header: 'Size', cell: ({ row }) => <SizeCell entry={row.original} /> }),
    column.accessor('modified_at', {
      header: 'Modified',
      cell: ({ getValue }) => (
        <time dateTime={getValue()} title={getValue()}>
          {formatTime(getValue())}
        </time>
      ),
    }),
    column.accessor('mode', { header: 'Mode', cell: ({ getValue }) => <code>{getValue()}</code> }),
    column.display({
      id: 'owner',
      header: 'Owner',
      cell: ({ row: { original } }) => <bdi>{`${original.user}:${original.group}`}</bdi>,
    }),
    column.display({
      id: 'actions',
      header: 'Actions',
      cell: ({ row }) => <EntryMenu machineId={machineId} entry={row.original} reason={reason} onTask={onTask} />,
    }),
  ]) as Columns<FileEntry>;

function NameCell({ entry }: { entry: FileEntry }) {
  return (
    <span title={visibleText(entry.path)}>
      <span className={`${styles.kind} ${styles[entry.type]}`} role="img" aria-label={KINDS[entry.type]} />
      <FileLink path={pathOf(entry)}>{entry.name}</FileLink>
      {entry.target === undefined ? null : (
        <span className={styles.target}>
          {' → '}
          <bdi>{visibleText(entry.target)}</bdi>
        </span>
      )}
    </span>
  );
}

function SizeCell({ entry: { type, size } }: { entry: FileEntry }) {
  if (type !== 'file') return '–';
  return <span title={`${size} bytes`}>{formatBytes(size)}</span>;
}
