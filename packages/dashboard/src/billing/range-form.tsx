// Lets the person choose the range of days that the charts show. An invalid day stays in its field with an error, and
// the charts keep the last valid range.
import { useState } from 'react';
import { Field } from '../ui/field.tsx';
import styles from './billing.module.css';
import { problemOf, type Range } from './range.ts';

const LABELS: Record<keyof Range, string> = { from: 'From', to: 'To (UTC)' };

export function RangeForm({ range, onChange }: { range: Range; onChange: (range: Range) => void }) {
  const [typed, setTyped] = useState(range);
  const [shown, setShown] = useState(range);
  // The URL has changed, for example by Back in the browser.
  if (shown.from !== range.from || shown.to !== range.to) {
    setShown(range);
    setTyped(range);
  }
  const problem = problemOf(typed);
  const set = (name: keyof Range, day: string) => {
    const next = { ...typed, [name]: day };
    setTyped(next);
    if (problemOf(next) === undefined) onChange(next);
  };
  return (
    <search className={styles.range} aria-label="Range of days">
      {(['from', 'to'] as const).map((name) => (
        <Field key={name} label={LABELS[name]} error={problem?.field === name ? problem.text : undefined}>
          {(control) => (
            <input {...control} type="date" value={typed[name]} onChange={({ target }) => set(name, target.value)} />
          )}
        </Field>
      ))}
    </search>
  );
}
