// What the machine used and cost in this month.
import { queryOptions, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useId } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { UNITS, USAGE_LABELS } from '../../billing/kinds.ts';
import { Problem } from '../../machines/problem.tsx';
import { accountQuery } from '../../session/session.ts';
import styles from './overview.module.css';

type Usage = Schemas['Usage'];

/** Use is metered by the minute or slower, so there is no need to ask more often. */
const REFRESH_MS = 30_000;

const machineUsageQuery = (id: string) =>
  queryOptions({
    queryKey: ['machines', id, 'usage'],
    queryFn: async () => {
      const query = { machine_id: id, group_by: 'kind' };
      // The type also has the text of the CSV format, which the client does not ask for.
      return (await unwrap(api.GET('/v1/billing/usage', { params: { query } }))) as Usage;
    },
    refetchInterval: REFRESH_MS,
  });

export function Cost({ machine }: { machine: Schemas['Machine'] }) {
  const title = useId();
  const { data: usage, error } = useQuery(machineUsageQuery(machine.id));
  return (
    <section className={styles.section} aria-labelledby={title}>
      <div className={styles.head}>
        <h2 id={title}>Cost this month</h2>
        <Link to="/billing">Billing</Link>
      </div>
      {usage ? <Items usage={usage} /> : error ? <Problem error={error} /> : <p role="status">Loading the cost…</p>}
    </section>
  );
}

function Items({ usage: { items, total, currency } }: { usage: Usage }) {
  const { data: account } = useQuery(accountQuery);
  if (items.length === 0) return <p className={styles.muted}>No use was metered yet.</p>;
  return (
    <>
      <table className={styles.table}>
        <thead>
          <tr>
            <th>Kind</th>
            <th className={styles.number}>Used</th>
            <th className={styles.number}>{currency}</th>
          </tr>
        </thead>
        <tbody>
          {items.map(({ kind, unit, quantity, amount }) => (
            <tr key={kind}>
              <td>{USAGE_LABELS[kind]}</td>
              <td className={styles.number}>
                {Number(quantity).toFixed(3)} {UNITS[unit]}
              </td>
              <td className={styles.number}>{amount}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th>Total</th>
            <td />
            <td className={styles.number}>{total}</td>
          </tr>
        </tfoot>
      </table>
      {account?.billing_mode === 'unmetered' ? (
        <p className={styles.muted}>The account is unmetered: its use is recorded, and nothing is charged.</p>
      ) : null}
    </>
  );
}
