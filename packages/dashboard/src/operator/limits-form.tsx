// Sets the tier and the limits of an account. An empty field means the limit of the tier, or the rate of the service.
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useRef } from 'react';
import { type AdminSchemas, adminApi } from '../api/admin-client.ts';
import { unwrap } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { ProblemText } from '../ui/problem.tsx';
import styles from './operator.module.css';
import { reasonAgainstChange } from './operator-accounts.ts';
import { TIERS } from './tiers.ts';

type Account = AdminSchemas['AccountDetails'];
type Limit = keyof Account['limits'];

const LABELS: Record<Limit, string> = {
  machines: 'Machines',
  vcpus: 'vCPUs',
  memory_mb: 'Memory, MiB',
  storage_gb: 'Storage, GiB',
  volumes: 'Volumes',
  vcpus_per_machine: 'vCPUs of a machine',
  memory_mb_per_machine: 'Memory of a machine, MiB',
};
const LIMITS = Object.keys(LABELS) as Limit[];

type Limits = Record<string, number | null>;

type RateName = keyof Account['rates'];
const RATE_LABELS: Record<RateName, string> = {
  mutating: 'Changes a second',
  exec: 'Jobs started a second',
};
const RATES = Object.keys(RATE_LABELS) as RateName[];

const usedOf = (account: Account, name: Limit): number | undefined =>
  (account.used as Partial<Record<Limit, number>>)[name];

export function LimitsForm({ account }: { account: Account }) {
  const queryClient = useQueryClient();
  const params = { path: { id: account.id } };
  const reason = reasonAgainstChange(account);
  /** The fields that the person changed. Only these are sent, because another operator may change the others. */
  const changed = useRef(new Set<string>());
  const save = useMutation({
    mutationFn: async ({ tier, limits }: { tier: Account['tier'] | undefined; limits: Limits }) => {
      if (Object.keys(limits).length > 0)
        await unwrap(adminApi.POST('/admin/v1/accounts/{id}/limits', { params, body: limits }));
      if (tier !== undefined && tier !== account.tier)
        await unwrap(adminApi.POST('/admin/v1/accounts/{id}/tier', { params, body: { tier } }));
    },
    onSettled: () => queryClient.invalidateQueries({ queryKey: ['operator'] }),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    // Enter in a field submits the form also when the button is off.
    if (save.isPending || reason !== undefined) return;
    const form = new FormData(event.currentTarget);
    const names = [...changed.current];
    const limits = Object.fromEntries(
      names
        .filter((name) => name !== 'tier')
        .map((name) => [name, form.get(name) === '' ? null : Number(form.get(name))]),
    );
    const tier = names.includes('tier') ? TIERS.find((known) => known === form.get('tier')) : undefined;
    changed.current.clear();
    save.mutate(
      { tier, limits },
      {
        onError: () => {
          for (const name of names) changed.current.add(name);
        },
      },
    );
  };
  const note = ({ target }: FormEvent<HTMLFormElement>) => {
    if (target instanceof HTMLInputElement || target instanceof HTMLSelectElement) changed.current.add(target.name);
  };
  return (
    <form onSubmit={submit} onChange={note} className={styles.form} aria-label="Limits">
      <h3>Limits</h3>
      <div className={styles.fields}>
        <Field label="Tier">
          {(control) => (
            // A credit can change the tier. The new key then shows it.
            <select {...control} key={account.tier} name="tier" defaultValue={account.tier}>
              {TIERS.map((tier) => (
                <option key={tier}>{tier}</option>
              ))}
            </select>
          )}
        </Field>
        {LIMITS.map((name) => {
          const { limit, override } = account.limits[name];
          const used = usedOf(account, name);
          const hint = `${used === undefined ? '' : `${used} used. `}Now ${limit}${override === null ? ', by the tier' : ''}.`;
          return (
            <Field key={name} label={LABELS[name]} hint={hint}>
              {(control) => (
                <input {...control} name={name} type="number" min={0} step={1} defaultValue={override ?? ''} />
              )}
            </Field>
          );
        })}
        {RATES.map((name) => {
          const { per_sec, burst, override } = account.rates[name];
          return (
            <Field
              key={name}
              label={RATE_LABELS[name]}
              hint={`Now ${per_sec}, and ${burst} at once${override === null ? ', by the service' : ''}.`}
            >
              {(control) => (
                <input
                  {...control}
                  name={`rate_${name}`}
                  type="number"
                  min={1}
                  step={1}
                  defaultValue={override ?? ''}
                />
              )}
            </Field>
          );
        })}
      </div>
      <p role={save.error ? 'alert' : 'status'} className={save.error ? styles.bad : styles.quiet}>
        {save.error ? <ProblemText error={save.error} /> : null}
        {save.isSuccess ? 'Saved.' : ''}
      </p>
      <Button type="submit" busy={save.isPending} reason={reason}>
        Save the limits
      </Button>
    </form>
  );
}
