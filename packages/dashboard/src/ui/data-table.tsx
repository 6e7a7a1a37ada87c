// A table of many rows. Only the rows on the screen are in the document. The page holds the sorting and the selection.
import { createColumnHelper, type RowData, useTable } from '@tanstack/react-table';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type ReactNode, useRef } from 'react';
import styles from './data-table.module.css';
import { type Columns, features, TableRow } from './data-table-row.tsx';

/** The least height of a row. It is the same in data-table.module.css. */
const ROW_PX = 40;

export const columnsFor = <T extends RowData>() => createColumnHelper<typeof features, T>();

type Props<T extends RowData> = {
  /** Names the table for screen readers. */
  label: string;
  rows: T[];
  columns: Columns<T>;
  idOf: (row: T) => string;
  /** The column by which the rows are sorted; `onSort` gets the id of the column that was pressed. */
  sort?: { by: string; isDescending: boolean };
  onSort?: (column: string) => void;
  sortable?: readonly string[];
  /** `toggle` must be the same function in every render. */
  selection?: { ids: ReadonlySet<string>; toggle: (id: string) => void; toggleAll: () => void };
  /** The height of a row whose cells have more than one line. */
  rowPx?: number;
  /** Shown instead of rows. */
  empty: ReactNode;
};

export function DataTable<T extends RowData>(props: Props<T>) {
  const { label, rows, columns, idOf, sort, onSort, sortable = [], selection, rowPx = ROW_PX, empty } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const table = useTable({ features, columns, data: rows, getRowId: idOf });
  const shown = table.getRowModel().rows;
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowPx,
    overscan: 12,
  });
  if (rows.length === 0) return <div className={styles.empty}>{empty}</div>;
  const items = virtual.getVirtualItems();
  const before = items[0]?.start ?? 0;
  const after = virtual.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
    <section ref={scroller} className={styles.scroller} aria-label={label} tabIndex={0}>
      <table className={styles.table} aria-rowcount={rows.length}>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {selection ? (
                <th className={styles.check}>
                  <input
                    type="checkbox"
                    aria-label="Select all"
                    checked={selection.ids.size > 0 && selection.ids.size === rows.length}
                    onChange={selection.toggleAll}
                  />
                </th>
              ) : null}
              {group.headers.map((header) => {
                const isSorted = sort?.by === header.column.id;
                const direction = sort?.isDescending ? 'descending' : 'ascending';
                return (
                  <th key={header.id} aria-sort={isSorted ? direction : undefined}>
                    {sortable.includes(header.column.id) ? (
                      <button type="button" className={styles.sort} onClick={() => onSort?.(header.column.id)}>
                        <table.FlexRender header={header} />
                        <span aria-hidden="true">{isSorted ? (sort.isDescending ? ' ↓' : ' ↑') : ''}</span>
                      </button>
                    ) : (
                      <table.FlexRender header={header} />
                    )}
                  </th>
                );
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          <Spacer px={before} />
          {items.map((item) => {
            const row = shown[item.index];
            if (!row) return null;
            return (
              <TableRow
                key={row.id}
                row={row}
                columns={columns}
                index={item.index}
                rowPx={rowPx}
                isSelected={selection?.ids.has(row.id)}
                toggle={selection?.toggle}
              />
            );
          })}
          <Spacer px={after} />
        </tbody>
      </table>
    </section>
  );
}

/** Takes the place of the rows that are not in the document. */
function Spacer({ px }: { px: number }) {
  if (px <= 0) return null;
  return (
    <tr>
      <td style={{ height: px, padding: 0, border: 0 }} />
    </tr>
  );
}
