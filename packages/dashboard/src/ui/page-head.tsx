// The head of a page: its title, how many entries it has, a sentence about it, and its main actions. The title is also
// the title of the browser's tab.
import type { ReactNode } from 'react';
import styles from './page-head.module.css';
import { useTitle } from './use-title.ts';

type Props = {
  title: string;
  /** The number of entries; undefined while it is not known. */
  count?: number | undefined;
  /** Buttons or links. */
  actions?: ReactNode;
  /** What the page is for. */
  children?: ReactNode;
};

export function PageHead({ title, count, actions, children }: Props) {
  useTitle(title);
  return (
    <header className={styles.head}>
      <div className={styles.row}>
        <h1>
          <bdi>{title}</bdi>
        </h1>
        {count === undefined ? null : <span className={styles.quiet}>{count}</span>}
        {actions ? <div className={styles.actions}>{actions}</div> : null}
      </div>
      {children ? <div className={styles.quiet}>{children}</div> : null}
    </header>
  );
}
