// A dialog with a form. When the request is refused, it stays open and shows the reason.
import type { FormEvent, ReactNode } from 'react';
import { Button } from './button.tsx';
import { Dialog, DialogButtons } from './dialog.tsx';
import { Failure } from './failure.tsx';
import styles from './form-dialog.module.css';

type Props = {
  title: ReactNode;
  submitLabel: string;
  /** `danger`: the form replaces or deletes something. */
  kind?: 'primary' | 'danger';
  isOpen: boolean;
  onClose: () => void;
  onSubmit: (form: FormData) => void;
  busy: boolean;
  error: Error | null;
  /** Why the form cannot be sent now. */
  reason?: string | undefined;
  children: ReactNode;
};

export function FormDialog(props: Props) {
  const { title, submitLabel, kind = 'primary', isOpen, onClose, onSubmit, busy, error, reason, children } = props;
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    // Enter in a field submits the form also when the button is off.
    if (!busy && reason === undefined) onSubmit(new FormData(event.currentTarget));
  };
  return (
    <Dialog isOpen={isOpen} onClose={onClose} title={title}>
      <form onSubmit={submit} className={styles.form}>
        {children}
        <Failure error={error} />
        <DialogButtons>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind={kind} busy={busy} reason={reason}>
            {submitLabel}
          </Button>
        </DialogButtons>
      </form>
    </Dialog>
  );
}
