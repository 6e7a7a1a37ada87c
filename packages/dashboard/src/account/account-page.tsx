// The signed-in account and its password.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { accountQuery } from '../session/session.ts';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import { Time } from '../ui/time.tsx';
import styles from './account.module.css';
import { ChangePassword } from './change-password.tsx';

const BILLING = {
  prepaid: 'prepaid: usage is paid from the wallet',
  unmetered: 'unmetered: usage is recorded and nothing is charged',
} as const;

export function AccountPage() {
  const account = useQuery(accountQuery);
  return (
    <>
      <PageHead title="Account" />
      <QueryGate query={account} what="the account">
        {(found) =>
          found === null ? (
            <p>
              You are not signed in. <Link to="/sign-in">Sign in</Link>
            </p>
          ) : (
            <>
              <dl className={styles.facts}>
                <dt>E-mail</dt>
                <dd>
                  <bdi>{found.email}</bdi>
                </dd>
                <dt>Tier</dt>
                <dd>
                  {found.tier} (<Link to="/quotas">see the quotas</Link>)
                </dd>
                <dt>Billing</dt>
                <dd>
                  {BILLING[found.billing_mode]} (<Link to="/billing">see the billing</Link>)
                </dd>
                <dt>Account id</dt>
                <dd>
                  <code>{found.id}</code>
                </dd>
                <dt>Created</dt>
                <dd>
                  <Time at={found.created_at} />
                </dd>
              </dl>
              <ChangePassword email={found.email} />
            </>
          )
        }
      </QueryGate>
    </>
  );
}
