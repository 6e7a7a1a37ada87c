// The links to the pages: a column beside the page, or a menu above it where the window is narrow.
import { Dialog } from '@base-ui/react/dialog';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { accountQuery } from '../session/session.ts';
import { AccountMenu } from './account-menu.tsx';
import styles from './navigation.module.css';
import { pageGroups } from './pages.ts';

/** `onLeave` is called when a link is followed. */
export function PageLinks({ onLeave }: { onLeave?: () => void }) {
  const { data: account } = useQuery(accountQuery);
  return (
    <nav aria-label="Pages" className={styles.links}>
      {pageGroups(account?.is_operator ?? false).map(({ label, pages }) => (
        <section key={label} aria-label={label}>
          <p aria-hidden="true" className={styles.group}>
            {label}
          </p>
          <ul>
            {pages.map((page) => (
              <li key={page.to}>
                <Link to={page.to} search={{}} activeProps={{ 'aria-current': 'page' }} onClick={onLeave}>
                  {page.label}
                </Link>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </nav>
  );
}

/** The menu of narrow windows. It covers the page and holds the focus until it is closed. */
export function NarrowMenu() {
  const [isOpen, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <Dialog.Root open={isOpen} onOpenChange={setOpen}>
      <Dialog.Trigger className={styles.trigger}>Menu</Dialog.Trigger>
      <Dialog.Portal>
        <Dialog.Backdrop className={styles.backdrop} />
        <Dialog.Popup className={styles.sheet}>
          <header className={styles.sheetHead}>
            <Dialog.Title className={styles.sheetTitle}>Menu</Dialog.Title>
            <Dialog.Close className={styles.trigger}>Close</Dialog.Close>
          </header>
          <PageLinks onLeave={close} />
          <AccountMenu />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}
