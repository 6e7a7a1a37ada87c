// The chart by day as a table, for screen readers and for exact numbers. The newest day comes first.
import styles from './billing.module.css';
import { formatEurCell, formatQuantity } from './money.ts';
import { Scroller } from './scroller.tsx';
import type { DaySeries } from './series.ts';

export function DayTable({ series: { days, isMoney, kinds } }: { series: DaySeries }) {
  const write = (value: number) => (isMoney ? formatEurCell(value.toFixed(6)) : formatQuantity(String(value)));
  return (
    <Scroller label="Usage by day">
      <table className={styles.table}>
        <thead>
          <tr>
            <th>Day (UTC)</th>
            {kinds.map(({ kind, label }) => (
              <th key={kind} className={styles.number}>
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {days
            .map((day, index) => (
              <tr key={day}>
                <td>{day}</td>
                {kinds.map(({ kind, values }) => (
                  <td key={kind} className={styles.number}>
                    {write(values[index] ?? 0)}
                  </td>
                ))}
              </tr>
            ))
            .reverse()}
        </tbody>
      </table>
    </Scroller>
  );
}
