// The filters of the activity feed. A person enters times in the local time zone; the URL holds them in UTC.

import styles from '../ui/filters.module.css';
import type { ActivitySearch } from './activity-search.ts';
import { CATEGORIES, CATEGORY_LABELS } from './activity-words.ts';

type Props = { search: ActivitySearch; onChange: (next: ActivitySearch) => void };

export function ActivityFilters({ search, onChange }: Props) {
  const { category, q = '', from, to } = search;
  const set = (name: keyof ActivitySearch, value: string | undefined) => {
    const { [name]: _before, ...rest } = search;
    onChange(value === undefined || value === '' ? rest : { ...rest, [name]: value });
  };
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
        <input type="search" value={q} maxLength={255} onChange={({ target }) => set('q', target.value)} />
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
  const leave = (text: string) => {
    const next = text === '' ? undefined : new Date(text).toISOString();
    if (next !== value) onChange(next);
  };
  return (
    <label>
      {label}
      <input
        type="datetime-local"
        step={1}
        defaultValue={value === undefined ? '' : toLocalText(new Date(value))}
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
