// The frame of every page behind the sign-in: navigation, command palette, toasts, and a line when the service does not
// answer.
import { useQuery } from '@tanstack/react-query';
import { Link, Navigate, Outlet, useRouter } from '@tanstack/react-router';
import { useState } from 'react';
import { accountQuery } from '../session/session.ts';
import { Toaster } from '../ui/toaster.tsx';
import { AccountMenu } from './account-menu.tsx';
import { NarrowMenu, PageLinks } from './navigation.tsx';
import { OutageLine } from './outage-line.tsx';
import { PaletteButton } from './palette-button.tsx';
import styles from './shell.module.css';
import { CONTENT_ID, SkipLink } from './skip-link.tsx';

export function Shell() {
  return (
    <Toaster>
      <SessionEnd />
      <div className={styles.frame}>
        <SkipLink />
        <header className={styles.side}>
          <Link to="/machines" search={{}} className={styles.brand}>
            Sandbar
          </Link>
          <PaletteButton />
          <div className={styles.narrow}>
            <NarrowMenu />
          </div>
          <div className={styles.wide}>
            <PageLinks />
            <AccountMenu />
          </div>
        </header>
        <div className={styles.page}>
          <OutageLine />
          <main id={CONTENT_ID} className={styles.content} tabIndex={-1}>
            <Outlet />
          </main>
        </div>
      </div>
    </Toaster>
  );
}

/** Goes to the sign-in page when the session has ended. */
function SessionEnd() {
  const { data: account } = useQuery(accountQuery);
  return account === null ? <GoToSignIn /> : null;
}

/** Remembers the URL at the time of mounting, because the URL changes during the redirect. */
function GoToSignIn() {
  const router = useRouter();
  const [to] = useState(() => router.state.location.href);
  return <Navigate to="/sign-in" search={{ to }} replace />;
}
