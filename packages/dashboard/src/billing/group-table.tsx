// A table whose rows also have a bar, so that it serves as a chart. Screen readers skip the bars.
import styles from './billing.module.css';
import { formatEurCell, formatQuantity } from './money.ts';
import { Scroller } from './scroller.tsx';

export type GroupRow = {
  id: string;
  name: string;
  detail?: string;
  /** Decides the length of the bar. */
  value: string;
  quantity: string;
  unit: string;
  /** EUR */
  amount: string;
};

export function GroupTable({ label, rows }: { label: string; rows: readonly GroupRow[] }) {
  const most = Math.max(...rows.map(({ value }) => Number(value)), 0);
  const share = (value: string) => (most === 0 ? 0 : (100 * Number(value)) / most);
  return (
    <Scroller label={`Usage by ${label}`}>
      <table className={styles.table}>
        <thead>
          <tr>
            <th>
              <bdi>{label}</bdi>
            </th>
            <th className={styles.number}>Used</th>
            <th className={styles.number}>Cost</th>
          </tr>
        </thead>
        <tbody>
          {[...rows]
            .sort((a, b) => Number(b.value) - Number(a.value))
            .map(({ id, name, detail, value, quantity, unit, amount }) => (
              <tr key={id}>
                <td className={styles.group}>
                  <bdi>{name}</bdi> {detail ? <span className={styles.quiet}>{detail}</span> : null}
                  <div className={styles.bar} aria-hidden="true" style={{ width: `${share(value)}%` }} />
                </td>
                <td className={styles.number}>
                  {formatQuantity(quantity)} {unit}
                </td>
                <td className={styles.number}>{formatEurCell(amount)}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </Scroller>
  );
}
