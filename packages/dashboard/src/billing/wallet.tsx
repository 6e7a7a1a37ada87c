// The balance, and the ways to add money to it.
import type { FormEvent } from 'react';
import { ApiProblem, api, unwrap } from '../api/client.ts';
import type { Account } from '../session/session.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { ProblemText } from '../ui/problem.tsx';
import styles from './billing.module.css';
import { formatEur } from './money.ts';
import { usePaymentPage } from './payment-page.ts';

/** The bounds of the API, EUR. */
const LEAST = 5;
const MOST = 10_000;

export function Wallet({ account }: { account: Account }) {
  return (
    <section className={styles.card} aria-labelledby="wallet">
      <h2 id="wallet">Balance</h2>
      <p className={styles.balance}>{formatEur(account.balance)}</p>
      {account.billing_mode === 'unmetered' ? (
        <p className={styles.quiet}>This account is unmetered: its use is recorded, and nothing is charged.</p>
      ) : (
        <>
          <p className={styles.quiet}>At €0 or less, running machines are stopped within a minute.</p>
          <AddMoney />
        </>
      )}
    </section>
  );
}

/**
 * Without a payment provider both requests are refused, because only the operator adds credit. Other refusals have the
 * same code, such as that of a suspended account, but they can end while the page is open.
 */
const isManual = (error: Error | null): boolean =>
  error instanceof ApiProblem && error.status === 403 && error.message.includes('takes no payments online');

function AddMoney() {
  const topUp = usePaymentPage('top-up', (amount: string) =>
    unwrap(api.POST('/v1/billing/top-ups', { body: { amount } })),
  );
  const card = usePaymentPage('card', () => unwrap(api.POST('/v1/billing/card')));
  const error = topUp.error ?? card.error;
  const manual = isManual(topUp.error) || isManual(card.error);
  const reason = manual ? 'The operator of this service adds credit.' : undefined;
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!manual) topUp.open(String(new FormData(event.currentTarget).get('amount')));
  };
  return (
    <>
      <form onSubmit={submit} className={styles.topUp}>
        <Field label="Amount in EUR" hint={`${LEAST} to 10,000`}>
          {(control) => (
            <input
              {...control}
              name="amount"
              type="number"
              inputMode="decimal"
              min={LEAST}
              max={MOST}
              step="0.01"
              defaultValue="25"
              required
            />
          )}
        </Field>
        <div className={styles.buttons}>
          <Button type="submit" kind="primary" busy={topUp.isBusy} reason={reason}>
            Top up
          </Button>
          <Button busy={card.isBusy} reason={reason} onClick={() => card.open(undefined)}>
            Add a card
          </Button>
        </div>
      </form>
      {error ? (
        <p role="alert" className={manual ? styles.quiet : styles.bad}>
          <ProblemText error={error} />
        </p>
      ) : null}
    </>
  );
}
