// Who is signed in, the theme, and signing out.
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { ApiProblem, api, unwrap } from '../api/client.ts';
import { startAfresh } from '../session/leave.ts';
import { accountQuery } from '../session/session.ts';
import { useNotify } from '../ui/notify.ts';
import styles from './account-menu.module.css';
import { chooseTheme, type ThemeChoice, themeChoice } from './theme.ts';

export function AccountMenu() {
  const { data: account } = useQuery(accountQuery);
  return (
    <div className={styles.menu}>
      <bdi className={styles.email} title={account?.email}>
        {account?.email}
      </bdi>
      <ThemeSelect />
      <SignOutButton />
    </div>
  );
}

const THEMES: Record<ThemeChoice, string> = { system: 'System theme', light: 'Light theme', dark: 'Dark theme' };

function ThemeSelect() {
  const [choice, setChoice] = useState(themeChoice);
  const change = (next: ThemeChoice) => {
    chooseTheme(next);
    setChoice(next);
  };
  return (
    <select
      aria-label="Theme"
      className={styles.theme}
      value={choice}
      onChange={({ target }) => change(target.value as ThemeChoice)}
    >
      {Object.entries(THEMES).map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

function SignOutButton() {
  const notify = useNotify();
  const signOut = useMutation({
    mutationFn: async () => {
      try {
        await unwrap(api.POST('/v1/auth/sign-out'));
      } catch (error) {
        // The session has ended already.
        if (!(error instanceof ApiProblem && error.status === 401)) throw error;
      }
    },
    onSuccess: () => startAfresh('/sign-in'),
    onError: (error) => notify.failed('You are still signed in', error),
  });
  return (
    <button type="button" className={styles.quiet} aria-busy={signOut.isPending} onClick={() => signOut.mutate()}>
      Sign out
    </button>
  );
}
