// Creates an account and shows its API key and password once. They are only in the state of one mutation with a gcTime
// of 0. Closing the dialog resets that mutation, so the page keeps no copy of them.
import { useQueryClient } from '@tanstack/react-query';
import { adminApi } from '../api/admin-client.ts';
import { unwrap } from '../api/client.ts';
import { Field } from '../ui/field.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { useSingle } from '../ui/use-single.ts';
import { useCloseBehindPassword } from './password-dialog.tsx';
import { accountsQuery } from './queries.ts';
import { SecretsDialog } from './secrets-dialog.tsx';
import { TIERS, type Tier } from './tiers.ts';

type NewAccountBody = { email: string; tier: Tier; credit_eur?: string };

export function NewAccount({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const queryClient = useQueryClient();
  const make = useSingle({
    mutationFn: (body: NewAccountBody) => unwrap(adminApi.POST('/admin/v1/accounts', { body })),
    gcTime: 0,
    onSuccess: async () => {
      onClose();
      await queryClient.invalidateQueries(accountsQuery);
    },
  });
  const close = useCloseBehindPassword(() => {
    // The secrets of a request that is under way would never be shown.
    if (make.isPending) return;
    make.reset();
    onClose();
  });
  const submit = (form: FormData) => {
    const credit = String(form.get('credit'));
    const tier = TIERS.find((known) => known === form.get('tier')) ?? 'free';
    make.run({ email: String(form.get('email')), tier, ...(credit === '' ? {} : { credit_eur: credit }) });
  };
  return (
    <>
      <FormDialog
        title="Create an account"
        submitLabel="Create the account"
        isOpen={isOpen}
        onClose={close}
        onSubmit={submit}
        busy={make.isPending}
        error={make.error}
      >
        <Field label="E-mail">
          {(control) => <input {...control} name="email" type="email" autoComplete="off" required maxLength={254} />}
        </Field>
        <Field label="Tier">
          {(control) => (
            <select {...control} name="tier" defaultValue="free">
              {TIERS.map((tier) => (
                <option key={tier}>{tier}</option>
              ))}
            </select>
          )}
        </Field>
        <Field
          label="First credit, EUR"
          hint="With a credit, which may be 0, the account is prepaid. Without one, it is unmetered."
        >
          {(control) => <input {...control} name="credit" inputMode="decimal" autoComplete="off" />}
        </Field>
      </FormDialog>
      <SecretsDialog secrets={make.data} onClose={make.reset} />
    </>
  );
}
