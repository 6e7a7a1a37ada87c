// Creates an API key and shows it once. The key is only in the state of one mutation with a gcTime of 0. Closing the
// dialog resets that mutation, so the page keeps no copy of the key.
import { useQueryClient } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { Field } from '../ui/field.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { useSingle } from '../ui/use-single.ts';
import { apiKeysQuery } from './api-keys-query.ts';
import { KeyDialog } from './key-dialog.tsx';
import { expiryAfter, LIFETIMES } from './key-lifetime.ts';
import { SCOPES, type Scope } from './scopes.ts';

export function NewApiKey({ open, onClose }: { open: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const create = useSingle({
    mutationFn: (body: Schemas['ApiKeyCreate']) => unwrap(api.POST('/v1/api-keys', { body })),
    gcTime: 0,
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: apiKeysQuery.queryKey });
    },
  });
  const close = () => {
    // The key of a request that is under way would never be shown.
    if (create.isPending) return;
    create.reset();
    onClose();
  };
  const submit = (form: FormData) => {
    const expiry = expiryAfter(String(form.get('lifetime')), new Date());
    create.run({
      name: String(form.get('name')),
      scope: form.get('scope') as Scope,
      ...(expiry === undefined ? {} : { expires_at: expiry.toISOString() }),
    });
  };
  return (
    <>
      <FormDialog
        title="New API key"
        submitLabel="Create key"
        isOpen={open}
        onClose={close}
        onSubmit={submit}
        busy={create.isPending}
        error={create.error}
      >
        <Field label="Name" hint="What uses the key, such as the name of a program.">
          {(control) => <input {...control} name="name" required maxLength={255} autoComplete="off" />}
        </Field>
        <Field label="Scope" hint="No key can manage API keys or the account.">
          {(control) => (
            <select {...control} name="scope" defaultValue="full">
              {Object.entries(SCOPES).map(([scope, label]) => (
                <option key={scope} value={scope}>
                  {label}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Expires">
          {(control) => (
            <select {...control} name="lifetime" defaultValue="90">
              {LIFETIMES.map(({ days, label }) => (
                <option key={days} value={days}>
                  {label}
                </option>
              ))}
            </select>
          )}
        </Field>
      </FormDialog>
      <KeyDialog made={create.data} onClose={() => create.reset()} />
    </>
  );
}
