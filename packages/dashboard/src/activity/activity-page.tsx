// The activity feed. The URL holds its filters. Older entries are loaded while the person scrolls.
import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { type UIEvent, useMemo } from 'react';
import { useLoadMachines } from '../machines/machines-query.ts';
import { samplesOf } from '../machines/samples.ts';
import { Button } from '../ui/button.tsx';
import { CodeSample } from '../ui/code-sample.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { Failure } from '../ui/failure.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { ACTIVITY_COLUMNS, type FeedRow } from './activity-columns.tsx';
import { ActivityFilters } from './activity-filters.tsx';
import { type ActivitySearch, activitySearch } from './activity-search.ts';
import { feedQuery, headQuery } from './feed.ts';

const route = getRouteApi('/signed-in/activity');

/** Older entries are loaded when the end of the list is this close to the visible part. */
const AHEAD_PX = 600;

export function ActivityPage() {
  // Checked again, because the sign-in leads here with parameters of its link that the router has not checked.
  const search = activitySearch(route.useSearch());
  const navigate = route.useNavigate();
  const change = (next: ActivitySearch) => void navigate({ search: next, replace: true });
  const client = useQueryClient();
  const feed = useInfiniteQuery(feedQuery(search));
  // Its entries arrive in the feed, so its own answers need no rendering.
  useQuery({ ...headQuery(search, client), enabled: feed.isSuccess, notifyOnChangeProps: [] });
  // Loads the names of the machines for the rows.
  useLoadMachines();
  // The same rows as long as the entries are the same, so that a poll draws no row again.
  const rows = useMemo(() => numbered(feed.data?.pages.flatMap(({ activity }) => activity) ?? []), [feed.data]);
  const loadOlder = () => {
    if (feed.hasNextPage && !feed.isFetchingNextPage) void feed.fetchNextPage();
  };
  const onScroll = ({ target }: UIEvent) => {
    if (!(target instanceof HTMLElement)) return;
    if (target.scrollHeight - target.scrollTop - target.clientHeight < AHEAD_PX) loadOlder();
  };
  return (
    <>
      <PageHead title="Activity" />
      <ActivityFilters search={search} onChange={change} />
      <Failure error={feed.error} />
      {feed.isPending ? <p role="status">Loading activity…</p> : null}
      {feed.isSuccess ? (
        <div onScrollCapture={onScroll}>
          <DataTable
            label="Activity"
            rows={rows}
            columns={ACTIVITY_COLUMNS}
            idOf={({ row }) => row}
            empty={Object.keys(search).length === 0 ? <NoActivity /> : <NoMatch onClear={() => change({})} />}
          />
        </div>
      ) : null}
      {feed.hasNextPage ? (
        <p>
          <Button busy={feed.isFetchingNextPage} onClick={loadOlder}>
            {feed.isFetchingNextPage ? 'Loading older entries…' : 'Load older entries'}
          </Button>
        </p>
      ) : null}
    </>
  );
}

/**
 * Builds an id for each entry from its time and its position among the entries of the same time, counted from the
 * oldest.
 */
function numbered(entries: readonly Omit<FeedRow, 'row'>[]): FeedRow[] {
  const seen = new Map<string, number>();
  return entries
    .toReversed()
    .map((entry) => {
      const place = seen.get(entry.created_at) ?? 0;
      seen.set(entry.created_at, place + 1);
      return { ...entry, row: `${entry.created_at} ${place}` };
    })
    .toReversed();
}

function NoActivity() {
  const samples = samplesOf({
    origin: location.origin,
    method: 'GET',
    path: '/v1/activity',
    cli: 'sandbar activity',
    typescript: 'for await (const entry of sandbar.account.activity()) console.log(entry.created_at, entry.action);',
  });
  return (
    <>
      <p>Nothing was done yet. Everything that is done with machines, volumes and snapshots appears here, and in:</p>
      <CodeSample samples={samples} />
    </>
  );
}

function NoMatch({ onClear }: { onClear: () => void }) {
  return (
    <>
      <p>No entry matches the filters.</p>
      <Button onClick={onClear}>Clear the filters</Button>
    </>
  );
}
