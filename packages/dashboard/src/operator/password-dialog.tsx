// Asks the operator for the password again, 15 minutes after it was checked. An account without a password signs in again
// at its provider. When the person closes the dialog, a line above the page offers to open it again.
import { type Query, useMutation, useQueryClient } from '@tanstack/react-query';
import { useSyncExternalStore } from 'react';
import { ApiProblem, api, unwrap } from '../api/client.ts';
import { passwordGate } from '../api/password-gate.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import styles from './operator.module.css';

const useGate = () => useSyncExternalStore(passwordGate.subscribe, passwordGate.state);

/** Wraps the `onClose` of another dialog. It does nothing while the password dialog is open above that dialog. */
export function useCloseBehindPassword(onClose: () => void): () => void {
  const isAsking = useGate() === 'asking';
  return () => {
    if (!isAsking) onClose();
  };
}

/**
 * Focuses the field. Otherwise the focus would begin on the first element that can have it, the button that closes the
 * dialog.
 */
const focusAtOpening = (input: HTMLInputElement | null) => input?.focus();

const NOTICES = {
  password: { text: 'The operator’s pages need your password again.', action: 'Confirm your password' },
  'sign-in': { text: 'The operator’s pages need you to sign in again.', action: 'Sign in again' },
};

const isWrongPassword = (error: Error | null): boolean => error instanceof ApiProblem && error.status === 400;

export function PasswordDialog() {
  const state = useGate();
  const proof = useSyncExternalStore(passwordGate.subscribe, passwordGate.proof);
  const queryClient = useQueryClient();
  const confirm = useMutation({
    mutationFn: (password: string) => unwrap(api.POST('/v1/auth/confirm-password', { body: { password } })),
    // Otherwise the password would stay in the memory of the page.
    gcTime: 0,
    onSuccess: () => {
      confirm.reset();
      passwordGate.confirm();
      // Requests that waited for the password are sent again by themselves. A read that was refused after the person
      // had closed the dialog is not.
      const isFailed = ({ state }: Query) => state.status === 'error';
      void queryClient.invalidateQueries({ queryKey: ['operator'], predicate: isFailed }, { cancelRefetch: false });
    },
  });
  const close = () => {
    confirm.reset();
    passwordGate.decline();
  };
  return (
    <>
      {state === 'declined' ? (
        <div className={styles.notice} role="status">
          <span>{NOTICES[proof].text} This page may be out of date.</span>
          <Button onClick={passwordGate.open}>{NOTICES[proof].action}</Button>
        </div>
      ) : null}
      <FormDialog
        title="Confirm your password"
        submitLabel="Confirm"
        isOpen={state === 'asking' && proof === 'password'}
        onClose={close}
        onSubmit={(form) => {
          if (!confirm.isPending) confirm.mutate(String(form.get('password')));
        }}
        busy={confirm.isPending}
        error={isWrongPassword(confirm.error) ? null : confirm.error}
      >
        <p className={styles.explanation}>The operator’s pages ask for it 15 minutes after it was last checked.</p>
        <Field label="Password" error={isWrongPassword(confirm.error) ? 'This is not your password.' : null}>
          {(control) => (
            <input
              {...control}
              ref={focusAtOpening}
              name="password"
              type="password"
              autoComplete="current-password"
              required
            />
          )}
        </Field>
      </FormDialog>
      <FormDialog
        title="Sign in again"
        submitLabel="Sign in again"
        isOpen={state === 'asking' && proof === 'sign-in'}
        onClose={close}
        onSubmit={() => window.location.assign('/v1/auth/oidc/sign-in?confirm=true')}
        busy={false}
        error={null}
      >
        <p className={styles.explanation}>
          Your account has no password. The operator’s pages ask you to sign in again at your OpenID Connect provider,
          15 minutes after the provider last asked you. What you have not saved on this page is lost.
        </p>
      </FormDialog>
    </>
  );
}
