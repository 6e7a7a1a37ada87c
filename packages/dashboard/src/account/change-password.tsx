// Changes the password. The service then ends every other session of the account, so this is also the way to sign out
// everywhere.
import { PASSWORD_BOUNDS } from '@sandbar/contract/password-bounds.ts';
import { useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { accountQuery } from '../session/session.ts';
import { Button } from '../ui/button.tsx';
import { Failure } from '../ui/failure.tsx';
import { Field } from '../ui/field.tsx';
import { useSingle } from '../ui/use-single.ts';
import styles from './account.module.css';

export function ChangePassword({ email }: { email: string }) {
  const client = useQueryClient();
  const [isDifferent, setDifferent] = useState(false);
  const change = useSingle({
    mutationFn: (body: Schemas['PasswordChange']) => unwrap(api.POST('/v1/auth/change-password', { body })),
    // The passwords leave the memory of the page when the form does.
    gcTime: 0,
    onSuccess: () => client.invalidateQueries({ queryKey: accountQuery.queryKey }),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const element = event.currentTarget;
    const form = new FormData(element);
    const newPassword = String(form.get('new'));
    const isWrong = newPassword !== form.get('repeated');
    setDifferent(isWrong);
    if (isWrong) return;
    const body = { current_password: String(form.get('current')), new_password: newPassword };
    change.run(body, () => element.reset());
  };
  const isCurrentWrong = change.error?.message.startsWith('current_password') ?? false;
  return (
    <form className={styles.form} onSubmit={submit} aria-labelledby="change-password">
      <h2 id="change-password">Change the password</h2>
      <p className={styles.note}>
        This also signs you out everywhere else: it ends all other sessions and cancels links from mails. API keys stay
        valid.
      </p>
      {/* Password managers need the name of the account beside a new password. */}
      <input type="text" name="email" value={email} autoComplete="username" readOnly hidden />
      <Field label="Current password" error={isCurrentWrong ? 'This is not your current password.' : undefined}>
        {(control) => <input {...control} name="current" type="password" autoComplete="current-password" required />}
      </Field>
      <Field label="New password" hint={`At least ${PASSWORD_BOUNDS.minLength} characters.`}>
        {(control) => (
          <input {...control} name="new" type="password" autoComplete="new-password" {...PASSWORD_BOUNDS} required />
        )}
      </Field>
      <Field label="New password again" error={isDifferent ? 'The two new passwords differ.' : undefined}>
        {(control) => <input {...control} name="repeated" type="password" autoComplete="new-password" required />}
      </Field>
      <Failure error={isCurrentWrong ? null : change.error} />
      <div>
        <Button type="submit" kind="primary" busy={change.isPending}>
          Change password
        </Button>
      </div>
      <p role="status" className={styles.note}>
        {change.isSuccess ? 'The password is changed, and all other sessions have ended.' : ''}
      </p>
    </form>
  );
}
