// The lines of a charge: which resource was used, how much, and at which price.
import { useQuery } from '@tanstack/react-query';
import type { Schemas } from '../api/client.ts';
import { MachineLink } from '../ui/machine-link.tsx';
import { Problem } from '../ui/problem.tsx';
import { exactTime } from '../ui/time.tsx';
import styles from './billing.module.css';
import { UNITS, USAGE_LABELS } from './kinds.ts';
import { formatEurCell, formatQuantity } from './money.ts';
import { entryQuery } from './queries.ts';

type Line = Schemas['LedgerDetails']['lines'][number];

export function ChargeLines({ id }: { id: string }) {
  const { data: entry, error, refetch } = useQuery(entryQuery(id));
  if (error) return <Problem title="The charge could not be loaded." error={error} onRetry={() => void refetch()} />;
  if (!entry) return <p role="status">Loading the charge…</p>;
  if (entry.lines.length === 0) return <p className={styles.quiet}>This charge has no lines.</p>;
  return (
    <table className={styles.table}>
      <caption>
        Usage from {exactTime(entry.charged_from ?? '')} to {exactTime(entry.charged_to ?? '')}
      </caption>
      <thead>
        <tr>
          <th>Resource</th>
          <th>Kind</th>
          <th className={styles.number}>Used</th>
          <th className={styles.number}>Price</th>
          <th className={styles.number}>Amount</th>
        </tr>
      </thead>
      <tbody>
        {entry.lines.map((line) => (
          <tr key={`${line.resource_id}/${line.kind}/${line.from}/${line.price}`}>
            <td>
              <Resource line={line} />
            </td>
            <td>{USAGE_LABELS[line.kind]}</td>
            <td className={styles.number}>
              {formatQuantity(line.quantity)} {UNITS[line.unit]}
            </td>
            <td className={styles.number}>{formatEurCell(line.price)}</td>
            <td className={styles.number}>{formatEurCell(line.amount)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Resource({ line: { resource_kind, resource_id } }: { line: Line }) {
  if (resource_kind === 'machine') {
    return (
      <>
        machine <MachineLink id={resource_id} />
      </>
    );
  }
  return (
    <>
      {resource_kind} <code title={resource_id}>…{resource_id.slice(-12)}</code>
    </>
  );
}
