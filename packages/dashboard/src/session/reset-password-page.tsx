// Sets a new password. Without a link, the page asks for the e-mail address and has a link sent to it. With the link,
// it asks for the password. The token is in the fragment of the URL, which browsers do not send.
import { PASSWORD_BOUNDS } from '@sandbar/contract/password-bounds.ts';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link, useLocation, useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { api, unwrap } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { ProblemText } from '../ui/problem.tsx';
import { useTitle } from '../ui/use-title.ts';
import { accountQuery } from './session.ts';
import styles from './sign-in.module.css';

export function ResetPasswordPage() {
  const token = useLocation({ select: ({ hash }) => new URLSearchParams(hash.replace(/^#/, '')).get('token') });
  const [isSet, setDone] = useState(false);
  useTitle('Password');
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        {isSet ? <PasswordIsSet /> : null}
        {!isSet && token ? <NewPassword key={token} token={token} onDone={() => setDone(true)} /> : null}
        {!isSet && !token ? <AskForLink /> : null}
        <Link to="/sign-in" search={{}} replace>
          Back to the sign-in
        </Link>
      </div>
    </main>
  );
}

function AskForLink() {
  const ask = useMutation({
    mutationFn: (email: string) => unwrap(api.POST('/v1/auth/request-password-reset', { body: { email } })),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!ask.isPending) ask.mutate(String(new FormData(event.currentTarget).get('email')));
  };
  if (ask.isSuccess) {
    return (
      <div role="status" className={styles.outcome}>
        <h1>Look into your mail</h1>
        <p>
          If there is an account for <bdi>{ask.variables}</bdi>, a link to set a new password is on its way. It works
          once, for an hour.
        </p>
      </div>
    );
  }
  return (
    <form onSubmit={submit} className={styles.form} aria-labelledby="title">
      <h1 id="title">Forgot your password?</h1>
      <Field
        label="E-mail"
        hint="We send you a link to set a new password."
        error={ask.error ? <ProblemText error={ask.error} /> : null}
      >
        {(control) => <input {...control} name="email" type="email" autoComplete="username" required />}
      </Field>
      <Button type="submit" kind="primary" busy={ask.isPending}>
        Send the link
      </Button>
    </form>
  );
}

function NewPassword({ token, onDone }: { token: string; onDone: () => void }) {
  const navigate = useNavigate();
  const queryClient = useQueryClient();
  const set = useMutation({
    mutationFn: (password: string) =>
      unwrap(api.POST('/v1/auth/reset-password', { body: { token, new_password: password } })),
    onSuccess: () => {
      // The new password ended all sessions of the account, perhaps also the one of this browser.
      queryClient.removeQueries(accountQuery);
      onDone();
      // The token was used, so it is removed from the URL.
      void navigate({ to: '/reset-password', replace: true });
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!set.isPending) set.mutate(String(new FormData(event.currentTarget).get('password')));
  };
  return (
    <form onSubmit={submit} className={styles.form} aria-labelledby="title">
      <h1 id="title">Set a new password</h1>
      <Field
        label="New password"
        hint={`At least ${PASSWORD_BOUNDS.minLength} characters.`}
        error={set.error ? <ProblemText error={set.error} /> : null}
      >
        {(control) => (
          <input
            {...control}
            name="password"
            type="password"
            autoComplete="new-password"
            {...PASSWORD_BOUNDS}
            required
          />
        )}
      </Field>
      {set.error ? (
        <Link to="/reset-password" replace>
          Ask for another link
        </Link>
      ) : null}
      <Button type="submit" kind="primary" busy={set.isPending}>
        Set the password
      </Button>
    </form>
  );
}

function PasswordIsSet() {
  return (
    <div role="status" className={styles.outcome}>
      <h1>Your new password is set</h1>
      <p>All sessions of the account have ended. Sign in with the new password.</p>
    </div>
  );
}
