// The box that says why an action failed. With `onDismiss` it stays until a person dismisses it.
import { Button } from './button.tsx';
import styles from './failure.module.css';
import { ProblemText } from './problem.tsx';

type Props = { error: Error | null; subject?: string; onDismiss?: () => void };

/** Shows nothing without an error. `subject`: what the action was about, such as the name of a volume. */
export function Failure({ error, subject, onDismiss }: Props) {
  if (!error) return null;
  return (
    <div role="alert" className={styles.failure}>
      <span className={styles.text}>
        {subject === undefined ? null : (
          <>
            <bdi>{subject}</bdi>:{' '}
          </>
        )}
        <ProblemText error={error} />
      </span>
      {onDismiss ? <Button onClick={onDismiss}>Dismiss</Button> : null}
    </div>
  );
}
