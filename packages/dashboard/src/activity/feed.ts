// The activity feed. Older pages are loaded on demand. The first page is polled, so new entries appear by themselves.
import { type InfiniteData, infiniteQueryOptions, type QueryClient, queryOptions } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';
import type { ActivitySearch } from './activity-search.ts';

type Page = Schemas['ActivityList'];
type Feed = InfiniteData<Page>;

const readPage = (query: ActivitySearch, cursor: string, signal: AbortSignal): Promise<Page> =>
  unwrap(api.GET('/v1/activity', { params: { query: { ...query, ...(cursor === '' ? {} : { cursor }) } }, signal }));

/** All pages that were loaded, newest first. */
export const feedQuery = (search: ActivitySearch) =>
  infiniteQueryOptions({
    queryKey: ['activity-feed', search],
    queryFn: ({ pageParam, signal }) => readPage(search, pageParam, signal),
    initialPageParam: '',
    getNextPageParam: ({ next_cursor }) => (next_cursor === '' ? undefined : next_cursor),
    // The newest entries come from headQuery. Reading all pages again would cost the service more and show the same.
    staleTime: Number.POSITIVE_INFINITY,
  });

/**
 * Polls the first page and merges its new entries into the feed. The data of this query itself is only the time of the
 * last answer.
 */
export const headQuery = (search: ActivitySearch, client: QueryClient) =>
  queryOptions({
    queryKey: ['activity', search],
    queryFn: async ({ signal }) => {
      const head = await readPage(search, '', signal);
      client.setQueryData(feedQuery(search).queryKey, (feed) => feed && withHead(feed, head));
      return Date.now();
    },
    refetchInterval: POLL_MS,
  });

const isSame = (a: object | undefined, b: object | undefined): boolean => JSON.stringify(a) === JSON.stringify(b);

/**
 * Merges a newer first page into the feed. Entries have no id and never change, so the last entry of the new page marks
 * where the known first page continues. If that entry is not found, more than one page is new: the feed restarts with
 * the new page, and older entries are loaded again on demand.
 */
function withHead(feed: Feed, head: Page): Feed {
  const [first, ...older] = feed.pages;
  if (!first) return feed;
  const isUnchanged = head.activity.every((entry, index) => isSame(entry, first.activity[index]));
  if (isUnchanged && head.activity.length > 0) return feed;
  const last = head.activity.at(-1);
  const overlap = first.activity.findLastIndex((entry) => isSame(entry, last));
  if (overlap < 0 || head.next_cursor === '') return { pages: [head], pageParams: [''] };
  const activity = [...head.activity, ...first.activity.slice(overlap + 1)];
  return { ...feed, pages: [{ ...first, activity }, ...older] };
}
