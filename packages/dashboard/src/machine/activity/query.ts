// The activity of one machine, page by page. Entries have no id, so a cheap poll of the newest entry detects changes.
// Only then are the loaded pages read again.
import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { POLL_MS, queryClient } from '../../api/query-client.ts';
import { refreshAfterReads } from '../../api/refresh.ts';

const readPage = (id: string, query: { page_size?: number; cursor?: string }): Promise<Schemas['ActivityList']> =>
  unwrap(api.GET('/v1/machines/{id}/activity', { params: { path: { id }, query } }));

export const machineActivityQuery = (id: string) =>
  infiniteQueryOptions({
    queryKey: ['machines', id, 'activity', 'pages'],
    queryFn: ({ pageParam }) => readPage(id, pageParam === '' ? {} : { cursor: pageParam }),
    initialPageParam: '',
    getNextPageParam: ({ next_cursor }) => (next_cursor === '' ? undefined : next_cursor),
  });

export const newestActivityQuery = (id: string) =>
  queryOptions({
    queryKey: ['machines', id, 'activity', 'newest'],
    queryFn: async () => {
      const [newest = null] = (await readPage(id, { page_size: 1 })).activity;
      const { queryKey } = machineActivityQuery(id);
      const [known = null] = queryClient.getQueryData(queryKey)?.pages[0]?.activity ?? [];
      if (JSON.stringify(newest) !== JSON.stringify(known)) void refreshAfterReads(queryClient, queryKey);
      return newest;
    },
    refetchInterval: POLL_MS,
  });
