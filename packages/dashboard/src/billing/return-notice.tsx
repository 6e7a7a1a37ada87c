// Shows how a visit to the payment provider ended, and waits for the credit. The provider reports a payment to the
// service separately, usually within seconds, so the browser may return before the credit is booked.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { POLL_MS } from '../api/query-client.ts';
import { accountQuery } from '../session/session.ts';
import { Button } from '../ui/button.tsx';
import styles from './billing.module.css';
import type { BillingSearch, Ending } from './billing-search.ts';
import { formatEur } from './money.ts';
import { creditSince, type Visit } from './visit.ts';

/** After this many polls the page polls less often. */
const QUICK_POLLS = 60;
const SLOW_POLL_MS = 30_000;

const CANCELLED: Record<Visit, string> = {
  'top-up': 'The payment was cancelled. Nothing was charged.',
  card: 'No card was added.',
};
const WAITING: Record<Visit, string> = {
  'top-up': 'The payment is done. Waiting for the payment provider to report it…',
  card: 'The card was added. The first card of an account brings a bonus once; it appears here when it is there.',
};

export function ReturnNotice({ search, onDismiss }: { search: BillingSearch; onDismiss: () => void }) {
  const visits = (['top-up', 'card'] as const).filter((visit) => search[visit] !== undefined);
  return visits.map((visit) => (
    <div key={visit} role="status" className={styles.notice}>
      <Outcome visit={visit} ending={search[visit] ?? 'cancelled'} />
      <Button onClick={onDismiss}>Dismiss</Button>
    </div>
  ));
}

function Outcome({ visit, ending }: { visit: Visit; ending: Ending }) {
  return ending === 'cancelled' ? <span>{CANCELLED[visit]}</span> : <Credit visit={visit} />;
}

function Credit({ visit }: { visit: Visit }) {
  const queryClient = useQueryClient();
  const { data: credit } = useQuery({
    queryKey: ['billing', 'credit', visit],
    queryFn: async () => {
      const found = await creditSince(visit);
      if (found) {
        await queryClient.invalidateQueries(accountQuery);
        await queryClient.invalidateQueries({ queryKey: ['billing', 'ledger'] });
      }
      return found;
    },
    refetchInterval: ({ state }) => {
      if (state.data) return false;
      return state.dataUpdateCount < QUICK_POLLS ? POLL_MS : SLOW_POLL_MS;
    },
  });
  return <span>{credit ? `${formatEur(credit.amount)} was added to the balance.` : WAITING[visit]}</span>;
}
