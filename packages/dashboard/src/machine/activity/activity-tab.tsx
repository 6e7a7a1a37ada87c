// The tab "activity" of a machine: what was done with it, newest first. Older entries are loaded when the end of the
// list comes into view.
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { ACTION_LABELS, ACTOR_LABELS, describeMetadata } from '../../activity/activity-words.ts';
import type { Schemas } from '../../api/client.ts';
import { Problem } from '../../machines/problem.tsx';
import { samplesOf } from '../../machines/samples.ts';
import { Button } from '../../ui/button.tsx';
import { CodeSample } from '../../ui/code-sample.tsx';
import { Time } from '../../ui/time.tsx';
import list from '../list.module.css';
import styles from './activity.module.css';
import { machineActivityQuery, newestActivityQuery } from './query.ts';

export function ActivityTab({ machine }: { machine: Schemas['Machine'] }) {
  const feed = useInfiniteQuery(machineActivityQuery(machine.id));
  useQuery({ ...newestActivityQuery(machine.id), enabled: feed.isSuccess });
  if (feed.data === undefined) {
    return feed.error ? <Problem error={feed.error} /> : <p role="status">Loading the activity…</p>;
  }
  const entries = feed.data.pages.flatMap(({ activity }) => activity);
  if (entries.length === 0) return <NoActivity machineId={machine.id} />;
  const loadOlder = () => {
    if (feed.hasNextPage && !feed.isFetching) void feed.fetchNextPage();
  };
  return (
    <div className={list.page}>
      <ol className={list.list} aria-label="Activity, newest first">
        {withKeys(entries).map(([key, entry]) => (
          <Entry key={key} entry={entry} />
        ))}
      </ol>
      <Problem error={feed.error} />
      {feed.hasNextPage ? (
        // After a failure only the button retries. Otherwise a failing request would be repeated endlessly while the
        // end is in view.
        <div ref={feed.isError ? null : whenVisible(loadOlder)}>
          <Button busy={feed.isFetchingNextPage} onClick={loadOlder}>
            {feed.isFetchingNextPage ? 'Loading…' : 'Load older entries'}
          </Button>
        </div>
      ) : (
        <p className={list.muted}>That is everything.</p>
      )}
    </div>
  );
}

/** A ref that calls `act` whenever the element comes into view. */
const whenVisible = (act: () => void) => (element: HTMLElement | null) => {
  if (!element) return;
  const observer = new IntersectionObserver((seen) => {
    if (seen.some(({ isIntersecting }) => isIntersecting)) act();
  });
  observer.observe(element);
  return () => observer.disconnect();
};

type ActivityEntry = Schemas['ActivityEntry'];

/** Entries have no id. The key is the entry as JSON, with a counter for identical entries. */
function withKeys(entries: readonly ActivityEntry[]): [string, ActivityEntry][] {
  const counts = new Map<string, number>();
  return entries.map((entry) => {
    const text = JSON.stringify(entry);
    const count = (counts.get(text) ?? 0) + 1;
    counts.set(text, count);
    return [`${text} ${count}`, entry];
  });
}

function Entry({ entry }: { entry: ActivityEntry }) {
  const { action, actor, created_at } = entry;
  return (
    <li className={styles.entry}>
      <strong title={action}>{ACTION_LABELS[action]}</strong>
      <span className={list.muted} title={actor}>
        {ACTOR_LABELS[actor]}
      </span>
      <bdi className={styles.details}>{describeMetadata(entry)}</bdi>
      <span className={list.muted}>
        <Time at={created_at} />
      </span>
    </li>
  );
}

function NoActivity({ machineId }: { machineId: string }) {
  return (
    <div className={list.empty}>
      <p>Nothing is recorded for this machine. The same list with any of these:</p>
      <CodeSample
        samples={samplesOf({
          origin: location.origin,
          method: 'GET',
          path: `/v1/machines/${machineId}/activity`,
          cli: `sandbar activity ${machineId}`,
          typescript: `const activity = sandbar.account.activity({ machineId: '${machineId}' });
for await (const entry of activity) console.log(entry);`,
        })}
      />
    </div>
  );
}
