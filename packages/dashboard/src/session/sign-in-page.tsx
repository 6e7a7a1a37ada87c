// The sign-in page. After it, the browser returns to the page that it came from.
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useRouter } from '@tanstack/react-router';
import { type FormEvent, useRef } from 'react';
import { ApiProblem, api, unwrap } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { ProblemText } from '../ui/problem.tsx';
import { useTitle } from '../ui/use-title.ts';
import { startAfresh } from './leave.ts';
import { accountQuery } from './session.ts';
import { isOther } from './session-end.ts';
import styles from './sign-in.module.css';

const route = getRouteApi('/sign-in');

export function SignInPage() {
  const { to = '/machines' } = route.useSearch();
  const router = useRouter();
  useTitle('Sign in');
  const queryClient = useQueryClient();
  const signIn = useMutation({
    mutationFn: (body: { email: string; password: string }) => unwrap(api.POST('/v1/auth/sign-in', { body })),
    onSuccess: (account) => {
      // A new document shows nothing of the account that was signed in before.
      if (isOther(account)) {
        startAfresh(to);
        return;
      }
      queryClient.removeQueries();
      queryClient.setQueryData(accountQuery.queryKey, account);
      router.history.replace(to);
    },
  });
  const password = useRef<HTMLInputElement>(null);
  const askAgain = () => {
    if (!password.current) return;
    password.current.value = '';
    password.current.focus();
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (signIn.isPending) return;
    const form = new FormData(event.currentTarget);
    const body = { email: String(form.get('email')), password: String(form.get('password')) };
    signIn.mutate(body, { onError: askAgain });
  };
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <form onSubmit={submit} className={styles.form} aria-labelledby="title">
          <h1 id="title">Sign in to Sandbar</h1>
          <Field label="E-mail">
            {(control) => <input {...control} name="email" type="email" autoComplete="username" required />}
          </Field>
          <Field label="Password">
            {(control) => (
              <input
                {...control}
                ref={password}
                name="password"
                type="password"
                autoComplete="current-password"
                required
              />
            )}
          </Field>
          <p role="alert" className={styles.problem}>
            {signIn.error ? <Refusal error={signIn.error} /> : null}
          </p>
          <Button type="submit" kind="primary" busy={signIn.isPending}>
            Sign in
          </Button>
        </form>
        <Link to="/reset-password">Forgot your password?</Link>
      </div>
    </main>
  );
}

/** A wrong password needs no request id, which is for reports to the operator. */
function Refusal({ error }: { error: Error }) {
  return error instanceof ApiProblem && error.status === 401 ? error.message : <ProblemText error={error} />;
}
