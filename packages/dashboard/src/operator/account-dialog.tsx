// One account for the operator: suspend or resume it, reset its password, credit it, and set its tier and limits.
import { useQuery } from '@tanstack/react-query';
import { formatEur } from '../billing/money.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Problem } from '../ui/problem.tsx';
import { AccountActions } from './account-actions.tsx';
import { CreditForm } from './credit-form.tsx';
import { LimitsForm } from './limits-form.tsx';
import styles from './operator.module.css';
import { useCloseBehindPassword } from './password-dialog.tsx';
import { accountDetailsQuery } from './queries.ts';

export function AccountDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { data: account, error, refetch } = useQuery(accountDetailsQuery(id));
  const close = useCloseBehindPassword(onClose);
  return (
    <Dialog isOpen onClose={close} title={account?.email ?? 'Account'}>
      {account ? (
        <div className={styles.form}>
          <dl className={styles.facts}>
            <dt>Id</dt>
            <dd>
              <code>{account.id}</code>
            </dd>
            <dt>Balance</dt>
            <dd>{account.billing_mode === 'unmetered' ? 'unmetered' : `${formatEur(account.balance)}, prepaid`}</dd>
            <dt>Operator</dt>
            <dd>{account.is_owner ? 'yes, as the first account' : account.is_operator ? 'yes' : 'no'}</dd>
          </dl>
          <AccountActions account={account} />
          <CreditForm account={account} />
          <LimitsForm key={account.id} account={account} />
        </div>
      ) : error ? (
        <Problem title="The account could not be loaded." error={error} onRetry={() => void refetch()} />
      ) : (
        <p role="status">Loading the account…</p>
      )}
    </Dialog>
  );
}
