// All accounts of the service, for its operator. The URL names the account whose dialog is open.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { AdminSchemas } from '../api/admin-client.ts';
import { formatEur } from '../billing/money.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { columnsFor, DataTable } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { Empty } from '../ui/empty.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { Problem } from '../ui/problem.tsx';
import { Time } from '../ui/time.tsx';
import { useUrlText } from '../ui/url-text.ts';
import { AccountDialog } from './account-dialog.tsx';
import { NewAccount } from './new-account.tsx';
import styles from './operator.module.css';
import { accountsQuery } from './queries.ts';

const route = getRouteApi('/signed-in/operator/accounts');
type Account = AdminSchemas['AccountSummary'];

const column = columnsFor<Account>();
const COLUMNS: Columns<Account> = column.columns([
  column.accessor('email', {
    header: 'E-mail',
    cell: ({ row: { original } }) => (
      <Link to="/accounts" search={(search) => ({ ...search, account: original.id })}>
        <bdi>{original.email}</bdi>
      </Link>
    ),
  }),
  column.display({
    id: 'state',
    header: 'State',
    cell: ({ row: { original } }) => <AccountBadge account={original} />,
  }),
  column.accessor('tier', { header: 'Tier' }),
  column.accessor('balance', {
    header: 'Balance',
    cell: ({ row: { original } }) =>
      original.billing_mode === 'unmetered' ? 'unmetered' : formatEur(original.balance),
  }),
  column.accessor('machines', { header: 'Machines' }),
  column.accessor('created_at', { header: 'Created', cell: ({ getValue }) => <Time at={getValue()} /> }),
]) as Columns<Account>;

export function AccountsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [isMaking, setMaking] = useState(false);
  const { data: accounts, error, refetch } = useQuery(accountsQuery);
  const field = useUrlText(search.q ?? '', (q) => void navigate({ search: { ...search, q }, replace: true }));
  const text = (search.q ?? '').toLowerCase();
  const shown = (accounts ?? []).filter(({ email, id }) => `${email} ${id}`.toLowerCase().includes(text));
  const close = () => void navigate({ search: search.q ? { q: search.q } : {} });
  return (
    <>
      <PageHead
        title="Accounts"
        count={accounts?.length}
        actions={
          <Button kind="primary" onClick={() => setMaking(true)}>
            Create an account
          </Button>
        }
      />
      <search className={styles.filters}>
        <input type="search" aria-label="E-mail or id" placeholder="E-mail or id" {...field} />
      </search>
      {error && !accounts ? (
        <Problem title="The accounts could not be loaded." error={error} onRetry={() => void refetch()} />
      ) : accounts ? (
        <DataTable
          label="Accounts"
          rows={shown}
          columns={COLUMNS}
          idOf={({ id }) => id}
          empty={
            <Empty samples={[{ label: 'CLI', code: 'sandbar admin account create --email ada@example.com' }]}>
              No account matches.
            </Empty>
          }
        />
      ) : (
        <p role="status">Loading accounts…</p>
      )}
      <NewAccount isOpen={isMaking} onClose={() => setMaking(false)} />
      {search.account === undefined ? null : <AccountDialog id={search.account} onClose={close} />}
    </>
  );
}

function AccountBadge({ account }: { account: Account }) {
  if (account.deleted_at !== null) return <Badge tone="quiet">deleted</Badge>;
  if (account.suspended_at !== null) return <Badge tone="bad">suspended</Badge>;
  return <Badge tone="good">{account.is_operator ? 'operator' : 'active'}</Badge>;
}
