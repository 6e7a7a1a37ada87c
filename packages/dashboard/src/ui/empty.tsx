// Shown in an empty list: one sentence, and code samples.
import type { ReactNode } from 'react';
import { CodeSample, type Sample } from './code-sample.tsx';
import styles from './empty.module.css';

export function Empty({ children, samples = [] }: { children: ReactNode; samples?: readonly Sample[] }) {
  return (
    <div className={styles.empty}>
      <div>{children}</div>
      <CodeSample samples={samples} />
    </div>
  );
}
