// The filters of the activity feed. A person enters times in the local time zone; the URL holds them in UTC.
import { useEffect, useRef } from 'react';
import styles from '../ui/filters.module.css';
import { useUrlText } from '../ui/url-text.ts';
import type { ActivitySearch } from './activity-search.ts';
import { CATEGORIES, CATEGORY_LABELS } from './activity-words.ts';

type Props = { search: ActivitySearch; onChange: (next: ActivitySearch) => void };

export function ActivityFilters({ search, onChange }: Props) {
  const { category, q = '', from, to } = search;
  const set = (name: keyof ActivitySearch, value: string | undefined) => {
    const { [name]: _before, ...rest } = search;
    onChange(value === undefined || value === '' ? rest : { ...rest, [name]: value });
  };
  const text = useUrlText(q, (value) => set('q', value));
  return (
    <search className={styles.filters}>
      <label>
        Category
        <select value={category ?? ''} onChange={({ target }) => set('category', target.value)}>
          <option value="">Everything</option>
          {CATEGORIES.map((known) => (
            <option key={known} value={known}>
              {CATEGORY_LABELS[known]}
            </option>
          ))}
        </select>
      </label>
      <label>
        Action, actor or id
        <input type="search" maxLength={255} {...text} />
      </label>
      <TimeField label="From" value={from} onChange={(value) => set('from', value)} />
      <TimeField label="To" value={to} onChange={(value) => set('to', value)} />
    </search>
  );
}

type TimeProps = { label: string; value: string | undefined; onChange: (value: string | undefined) => void };

/**
 * Reports a time only when the field loses the focus or Enter is pressed, because the browser also reports unfinished
 * times while a person types.
 */
function TimeField({ label, value, onChange }: TimeProps) {
  const input = useRef<HTMLInputElement>(null);
  const text = value === undefined ? '' : toLocalText(new Date(value));
  // Only a change of the URL replaces what the field has: the other fields change the URL while a person types here.
  useEffect(() => {
    if (input.current) input.current.value = text;
  }, [text]);
  const leave = (entered: string) => {
    const next = entered === '' ? undefined : new Date(entered).toISOString();
    if (next !== value) onChange(next);
  };
  return (
    <label>
      {label}
      <input
        ref={input}
        type="datetime-local"
        step={1}
        onBlur={({ target }) => leave(target.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter') leave(event.currentTarget.value);
        }}
      />
    </label>
  );
}

/** Formats a time for an input of type datetime-local: the local time without a zone, to the second. */
function toLocalText(time: Date): string {
  const local = new Date(time.getTime() - time.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}
