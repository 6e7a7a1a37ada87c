// A part of the overview that shows a value and, after "Change", a form for it.
import { type FormEvent, type ReactNode, useId } from 'react';
import form from '../../machines/form.module.css';
import { Problem } from '../../machines/problem.tsx';
import { Button } from '../../ui/button.tsx';
import styles from './overview.module.css';

type Props = {
  title: string;
  /** The value as text. */
  shown: ReactNode;
  isOpen: boolean;
  onOpen: () => void;
  onClose: () => void;
  onSave: () => void;
  /** Why the value cannot be changed. */
  reason?: string | undefined;
  isSaving: boolean;
  error: Error | null;
  /** The fields of the form. */
  children: ReactNode;
};

export function Editor({ title, shown, isOpen, onOpen, onClose, onSave, reason, isSaving, error, children }: Props) {
  const id = useId();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSave();
  };
  return (
    <section className={styles.section} aria-labelledby={id}>
      <div className={styles.head}>
        <h2 id={id}>{title}</h2>
        {isOpen ? null : (
          <Button reason={reason} aria-label={`Change: ${title}`} onClick={onOpen}>
            Change
          </Button>
        )}
      </div>
      {isOpen ? (
        <form noValidate onSubmit={submit} className={form.form} aria-labelledby={id}>
          {children}
          <Problem error={error} />
          <div className={form.buttons}>
            <Button type="submit" kind="primary" busy={isSaving}>
              Save
            </Button>
            <Button onClick={onClose}>Cancel</Button>
          </div>
        </form>
      ) : (
        <div>{shown}</div>
      )}
    </section>
  );
}
