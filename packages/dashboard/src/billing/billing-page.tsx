// Billing: the balance and how to top it up, the usage, and the ledger. The URL holds the range and the filters.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useLoadMachines } from '../machines/machines-query.ts';
import { accountQuery } from '../session/session.ts';
import { PageHead } from '../ui/page-head.tsx';
import styles from './billing.module.css';
import type { BillingSearch } from './billing-search.ts';
import { LedgerSection } from './ledger-section.tsx';
import { rangeOf } from './range.ts';
import { RangeForm } from './range-form.tsx';
import { ReturnNotice } from './return-notice.tsx';
import { UsageByDay, UsageByKind, UsageByTag } from './usage-section.tsx';
import { Wallet } from './wallet.tsx';

const route = getRouteApi('/signed-in/billing');
const POLL_MS = 10_000;

export function BillingPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data: account } = useQuery({ ...accountQuery, refetchInterval: POLL_MS });
  // Loads the names of the machines for the lines of charges.
  useLoadMachines();
  const range = rangeOf(search, Date.now());
  const change = (next: Partial<Record<keyof BillingSearch, string | undefined>>) => {
    const entries = Object.entries({ ...search, ...next }).filter(([, value]) => value !== undefined && value !== '');
    void navigate({ search: Object.fromEntries(entries) as BillingSearch, replace: true });
  };
  return (
    <>
      <PageHead title="Billing" />
      <ReturnNotice search={search} onDismiss={() => change({ 'top-up': undefined, card: undefined })} />
      <div className={styles.page}>
        {account ? <Wallet account={account} /> : <p role="status">Loading the balance…</p>}
        <RangeForm range={range} onChange={change} />
        <UsageByDay range={range} />
        <div className={styles.pair}>
          <UsageByKind range={range} />
          <UsageByTag range={range} tag={search.tag} onChange={(tag) => change({ tag })} />
        </div>
        <LedgerSection
          kind={search.kind}
          open={search.entry}
          onKind={(kind) => change({ kind, entry: undefined })}
          onOpen={(entry) => change({ entry })}
        />
      </div>
    </>
  );
}
