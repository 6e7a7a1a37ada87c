// The usage in a range of days: by day, by kind and by a key of the machines' metadata.
import { useQuery } from '@tanstack/react-query';
import { type ReactNode, Suspense, useMemo } from 'react';
import type { Schemas } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { Field } from '../ui/field.tsx';
import { lazyPart } from '../ui/lazy-part.ts';
import { Problem } from '../ui/problem.tsx';
import styles from './billing.module.css';
import { downloadUsage } from './csv.ts';
import { CsvButton } from './csv-button.tsx';
import { DayTable } from './day-table.tsx';
import { GroupTable } from './group-table.tsx';
import { formatEur } from './money.ts';
import { usageQuery } from './queries.ts';
import type { Range } from './range.ts';
import { byDay, byKind, byTag, isCharged } from './series.ts';

const DayChart = lazyPart(() => import('./day-chart.tsx'), 'DayChart');
type Usage = Schemas['Usage'];

export function UsageByDay({ range }: { range: Range }) {
  return (
    <UsageCard title="Usage by day" range={range} groupBy="day">
      {({ usage }) => <Days usage={usage} from={range.from} to={range.to} />}
    </UsageCard>
  );
}

function Days({ usage, from, to }: { usage: Usage } & Range) {
  // The chart draws again, and forgets where the pointer is, for each new object.
  const series = useMemo(() => byDay(usage, { from, to }), [usage, from, to]);
  return (
    <>
      <Suspense fallback={<p role="status">Loading the chart…</p>}>
        <DayChart series={series} />
      </Suspense>
      <details>
        <summary>The chart as a table</summary>
        <DayTable series={series} />
      </details>
    </>
  );
}

export function UsageByKind({ range }: { range: Range }) {
  return (
    <UsageCard title="Usage by kind" range={range} groupBy="kind">
      {({ usage }) => <GroupTable label="Kind" rows={byKind(usage)} />}
    </UsageCard>
  );
}

type TagProps = { range: Range; tag: string | undefined; onChange: (tag: string) => void };

/** The key is applied with Enter or the button, so that no request is sent for a half-typed key. */
export function UsageByTag({ range, tag, onChange }: TagProps) {
  return (
    <section className={styles.card} aria-labelledby="by-tag">
      <h2 id="by-tag">Usage by metadata</h2>
      <form
        className={styles.row}
        onSubmit={(event) => {
          event.preventDefault();
          onChange(String(new FormData(event.currentTarget).get('tag')));
        }}
      >
        <Field label="Key of the machines' metadata">
          {(control) => <input {...control} key={tag} name="tag" defaultValue={tag ?? ''} maxLength={256} />}
        </Field>
        <Button type="submit">Group</Button>
      </form>
      {tag === undefined ? (
        <p className={styles.quiet}>Give a key, such as team, to see what each of its values used.</p>
      ) : (
        <UsageBody range={range} groupBy={`metadata.${tag}`}>
          {({ usage }) => <GroupTable label={tag} rows={byTag(usage)} />}
        </UsageBody>
      )}
    </section>
  );
}

type BodyProps = { range: Range; groupBy: string; children: (props: { usage: Usage }) => ReactNode };

function UsageCard({ title, ...body }: BodyProps & { title: string }) {
  return (
    <section className={styles.card} aria-label={title}>
      <h2>{title}</h2>
      <UsageBody {...body} />
    </section>
  );
}

function UsageBody({ range, groupBy, children: render }: BodyProps) {
  const { data: usage, error, refetch } = useQuery(usageQuery(range, groupBy));
  if (error && !usage) {
    return <Problem title="The usage could not be loaded." error={error} onRetry={() => void refetch()} />;
  }
  if (!usage) return <p role="status">Loading the usage…</p>;
  if (usage.items.length === 0) return <p className={styles.quiet}>Nothing was used in this range.</p>;
  return (
    <>
      {render({ usage })}
      <p className={styles.foot}>
        <span>{isCharged(usage) ? `${formatEur(usage.total)} in all` : 'Nothing was charged.'}</span>
        <CsvButton label={`the usage by ${groupBy}`} download={() => downloadUsage(range, groupBy)} />
      </p>
    </>
  );
}
