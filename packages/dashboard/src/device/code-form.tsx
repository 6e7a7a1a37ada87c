// Asks for the code that a program shows.
import type { FormEvent, ReactNode } from 'react';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import styles from './device.module.css';

type Props = {
  /** The code that was entered last. */
  code: string;
  busy: boolean;
  /** Why that code was refused. */
  error: ReactNode;
  onSubmit: (code: string) => void;
};

export function CodeForm({ code, busy, error, onSubmit }: Props) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const entered = String(new FormData(event.currentTarget).get('code')).trim().toUpperCase();
    if (!busy && entered !== '') onSubmit(entered);
  };
  return (
    <form className={styles.box} onSubmit={submit}>
      <Field label="Code" hint="Eight letters, such as WDJB-MJHT." error={error}>
        {(control) => (
          <input
            {...control}
            name="code"
            className={styles.input}
            defaultValue={code}
            required
            maxLength={32}
            autoComplete="off"
            autoCapitalize="characters"
            spellCheck={false}
          />
        )}
      </Field>
      <div>
        <Button type="submit" kind="primary" busy={busy}>
          Continue
        </Button>
      </div>
    </form>
  );
}
