// Rows of keys and values, for metadata and environment variables.
import { type ReactNode, useId } from 'react';
import { Button } from '../ui/button.tsx';
import styles from './form.module.css';
import { emptyRow, type Row } from './key-values.ts';

type Props = {
  /** What the rows are, such as "Metadata". */
  label: string;
  hint?: ReactNode;
  error?: ReactNode;
  rows: readonly Row[];
  onChange: (rows: Row[]) => void;
};

export function KeyValueRows({ label, hint, error, rows, onChange }: Props) {
  const id = useId();
  const edit = (row: Row) => onChange(rows.map((old) => (old.id === row.id ? row : old)));
  return (
    <fieldset className={styles.group} aria-describedby={`${id}-hint ${id}-error`}>
      <legend>{label}</legend>
      <span id={`${id}-hint`} className={styles.hint}>
        {hint}
      </span>
      {rows.map((row, index) => (
        <div key={row.id} className={styles.row}>
          <input
            aria-label={`${label}: key ${index + 1}`}
            placeholder="Key"
            autoComplete="off"
            spellCheck={false}
            value={row.key}
            onChange={({ target }) => edit({ ...row, key: target.value })}
          />
          <input
            aria-label={`${label}: value ${index + 1}`}
            placeholder="Value"
            autoComplete="off"
            spellCheck={false}
            value={row.value}
            onChange={({ target }) => edit({ ...row, value: target.value })}
          />
          <Button
            aria-label={`${label}: remove row ${index + 1}`}
            onClick={() => onChange(rows.filter((old) => old.id !== row.id))}
          >
            Remove
          </Button>
        </div>
      ))}
      <div>
        <Button onClick={() => onChange([...rows, emptyRow()])}>{`Add to ${label.toLowerCase()}`}</Button>
      </div>
      <span id={`${id}-error`} className={styles.error} role="alert">
        {error}
      </span>
    </fieldset>
  );
}
