// The columns of the activity feed.
import styles from '../ui/clipped.module.css';
import { columnsFor } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { MachineLink } from '../ui/machine-link.tsx';
import { exactTime } from '../ui/time.tsx';
import { ACTION_LABELS, ACTOR_LABELS, clockTime, describeMetadata, type Entry } from './activity-words.ts';

/** The end of an id, as links to machines show it. */
const shortId = (id: string): string => `…${id.slice(-12)}`;

/**
 * Entries have no id. `row` is made from the time and a count from the oldest entry, so it stays the same when newer
 * entries arrive.
 */
export type FeedRow = Entry & { row: string };

const column = columnsFor<FeedRow>();
export const ACTIVITY_COLUMNS: Columns<FeedRow> = column.columns([
  column.accessor('created_at', {
    header: 'Time',
    cell: ({ row: { original } }) => (
      <time dateTime={original.created_at} title={exactTime(original.created_at)}>
        {clockTime(original.created_at)}
      </time>
    ),
  }),
  column.accessor('action', {
    header: 'What',
    cell: ({ row: { original } }) => <span title={original.action}>{ACTION_LABELS[original.action]}</span>,
  }),
  column.accessor('machine_id', {
    header: 'Machine',
    cell: ({ row: { original } }) =>
      original.machine_id === undefined ? '' : <MachineLink id={original.machine_id} />,
  }),
  column.display({
    id: 'details',
    header: 'Details',
    cell: ({ row: { original } }) => {
      return (
        <bdi className={styles.clipped} title={describeMetadata(original)}>
          {describeMetadata(original, shortId)}
        </bdi>
      );
    },
  }),
  column.accessor('actor', {
    header: 'Who',
    cell: ({ row: { original } }) => <span title={original.actor}>{ACTOR_LABELS[original.actor]}</span>,
  }),
]) as Columns<FeedRow>;
