// The line of a form or tab that says why the last request failed. It is always there, so that screen readers hear it.
import { ProblemText } from '../ui/problem.tsx';
import styles from './form.module.css';

export function Problem({ error }: { error: Error | null | undefined }) {
  return (
    <div role="alert" className={styles.problem}>
      {error ? <ProblemText error={error} /> : null}
    </div>
  );
}
