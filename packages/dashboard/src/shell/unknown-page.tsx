// Shown for a URL without a page.
import { Link } from '@tanstack/react-router';
import { useTitle } from '../ui/use-title.ts';
import styles from './failed-page.module.css';

/** Inside the shell, for an unknown URL below a page that exists. */
export function UnknownPage() {
  useTitle('No such page');
  return (
    <section className={styles.page}>
      <h1>There is no such page</h1>
      <p>
        Nothing is at <code className={styles.detail}>{location.pathname}</code>.
      </p>
      <Link to="/machines" search={{}}>
        Go to the machines
      </Link>
    </section>
  );
}

/** Without the shell. */
export function UnknownAddress() {
  return (
    <main>
      <UnknownPage />
    </main>
  );
}
