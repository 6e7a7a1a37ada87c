// When a machine ends by itself and what happens then.
import type { ReactNode } from 'react';
import { Field } from '../ui/field.tsx';
import { type Expiry, readAction, UNIT_SEC, type Unit } from './create-body.ts';
import styles from './form.module.css';

type Props = {
  value: Expiry;
  /** What an empty field means. */
  empty?: 'never' | 'unchanged';
  error?: ReactNode;
  onChange: (expiry: Expiry) => void;
};

const UNITS = Object.keys(UNIT_SEC) as Unit[];

export function ExpiryField({ value, empty = 'never', error, onChange }: Props) {
  return (
    <div className={styles.three}>
      <Field label="Expires after" hint={`Empty: ${empty}.`} error={error}>
        {(attributes) => (
          <input
            {...attributes}
            data-field="expires_in_sec"
            // Not a number field: such a field reports a text that is no number as empty.
            inputMode="numeric"
            autoComplete="off"
            placeholder={empty}
            value={value.count}
            onChange={({ target }) => onChange({ ...value, count: target.value })}
          />
        )}
      </Field>
      <Field label="Unit">
        {(attributes) => (
          <select
            {...attributes}
            value={value.unit}
            onChange={({ target }) =>
              onChange({ ...value, unit: UNITS.find((unit) => unit === target.value) ?? 'hours' })
            }
          >
            {UNITS.map((unit) => (
              <option key={unit}>{unit}</option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Then" hint={value.action === 'destroy' ? 'With snapshots it is stopped.' : undefined}>
        {(attributes) => (
          <select
            {...attributes}
            value={value.action}
            onChange={({ target }) => onChange({ ...value, action: readAction(target.value) })}
          >
            <option value="destroy">destroy it</option>
            <option value="stop">stop it</option>
          </select>
        )}
      </Field>
    </div>
  );
}
