// A row of a table, and what the type of a table's columns is.
import { type ColumnDef, FlexRender, type Row, type RowData, tableFeatures } from '@tanstack/react-table';
import { memo, type ReactNode } from 'react';
import styles from './data-table.module.css';

export const features = tableFeatures({});
/** Must be the same array in every render. */
export type Columns<T extends RowData> = ColumnDef<typeof features, T>[];

type RowProps<T extends RowData> = {
  row: Row<typeof features, T>;
  columns: Columns<T>;
  index: number;
  rowPx: number;
  /** Undefined: rows cannot be selected. */
  isSelected: boolean | undefined;
  toggle: ((id: string) => void) | undefined;
};

/**
 * A row, drawn again only when what it shows has changed: without that, a scroll step through 1,000 machines drew all rows
 * on the screen again. The table makes new row objects whenever any entry changes, so the entries are compared.
 */
export const TableRow = memo(
  function TableRow<T extends RowData>({ row, index, rowPx, isSelected, toggle }: RowProps<T>) {
    return (
      <tr aria-rowindex={index + 1} style={{ height: rowPx }}>
        {isSelected === undefined ? null : (
          <td className={styles.check}>
            <input
              type="checkbox"
              aria-label={`Select ${row.id}`}
              checked={isSelected}
              onChange={() => toggle?.(row.id)}
            />
          </td>
        )}
        {row.getAllCells().map((cell) => (
          <td key={cell.id}>
            <FlexRender cell={cell} />
          </td>
        ))}
      </tr>
    );
  },
  (before, now) =>
    before.row.original === now.row.original &&
    before.columns === now.columns &&
    before.index === now.index &&
    before.rowPx === now.rowPx &&
    before.isSelected === now.isSelected &&
    before.toggle === now.toggle,
) as <T extends RowData>(props: RowProps<T>) => ReactNode;
