// Holds a table that may be wider than the page. It can be scrolled by keyboard too.
import type { ReactNode } from 'react';
import styles from './billing.module.css';

export function Scroller({ label, children }: { label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
    <section className={styles.scroller} aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
