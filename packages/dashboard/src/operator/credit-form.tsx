// Adds money to an account's balance, or corrects it. A reference makes a repeated request harmless.
import { useQueryClient } from '@tanstack/react-query';
import type { FormEvent } from 'react';
import { type AdminSchemas, adminApi } from '../api/admin-client.ts';
import { unwrap } from '../api/client.ts';
import { formatEur } from '../billing/money.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { ProblemText } from '../ui/problem.tsx';
import { useSingle } from '../ui/use-single.ts';
import styles from './operator.module.css';

const KINDS = ['top-up', 'bonus', 'correction'] as const;

type Credit = { eur: string; as: (typeof KINDS)[number]; reference: string };

export function CreditForm({ account: { id } }: { account: AdminSchemas['AccountDetails'] }) {
  const queryClient = useQueryClient();
  const credit = useSingle({
    mutationFn: (body: Credit) =>
      unwrap(adminApi.POST('/admin/v1/accounts/{id}/credit', { params: { path: { id } }, body })),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['operator'] }),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const as = KINDS.find((kind) => kind === form.get('as')) ?? 'top-up';
    credit.run({ eur: String(form.get('eur')), as, reference: String(form.get('reference')) });
  };
  return (
    <form onSubmit={submit} className={styles.form} aria-label="Credit">
      <h3>Credit</h3>
      <div className={styles.fields}>
        <Field label="EUR">{(control) => <input {...control} name="eur" inputMode="decimal" required />}</Field>
        <Field label="As">
          {(control) => (
            <select {...control} name="as">
              {KINDS.map((kind) => (
                <option key={kind}>{kind}</option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Reference" hint="Such as the number of a transfer. It counts once.">
          {(control) => <input {...control} name="reference" required maxLength={255} />}
        </Field>
      </div>
      <p role={credit.error ? 'alert' : 'status'} className={credit.error ? styles.bad : styles.quiet}>
        {credit.error ? <ProblemText error={credit.error} /> : null}
        {credit.data ? describe(credit.data) : null}
      </p>
      <Button type="submit" busy={credit.isPending}>
        Credit
      </Button>
    </form>
  );
}

const describe = ({ is_new, balance }: AdminSchemas['AccountCredited']): string =>
  is_new
    ? `Done. The balance is ${formatEur(balance)}.`
    : 'This credit was there already, with the same reference. Nothing was changed.';
