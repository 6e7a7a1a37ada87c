// A labelled control of a form, with a hint and the reason why its value was refused. Screen readers hear all three.
import { type ReactNode, useId } from 'react';
import styles from './field.module.css';

/** What the control must take over: `<input {...control} />`. */
type ControlProps = {
  id: string;
  'aria-describedby': string | undefined;
  'aria-invalid': boolean;
};

type Props = {
  label: string;
  hint?: ReactNode;
  error?: ReactNode;
  /** Draws the input, select or textarea. */
  children: (control: ControlProps) => ReactNode;
};

export function Field({ label, hint, error, children }: Props) {
  const id = useId();
  const isWrong = error !== undefined && error !== null && error !== '';
  const described = [hint ? `${id}-hint` : '', isWrong ? `${id}-error` : ''].filter((part) => part !== '');
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      {children({ id, 'aria-describedby': described.join(' ') || undefined, 'aria-invalid': isWrong })}
      {hint ? (
        <p id={`${id}-hint`} className={styles.hint}>
          {hint}
        </p>
      ) : null}
      {isWrong ? (
        <p id={`${id}-error`} role="alert" className={styles.error}>
          {error}
        </p>
      ) : null}
    </div>
  );
}
