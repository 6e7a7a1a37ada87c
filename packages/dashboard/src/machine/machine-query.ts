// One machine as the API shows it. The file is apart from the page, so that a tab can use it without importing the page.
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';

export const machineQuery = (id: string) =>
  queryOptions({
    queryKey: ['machines', id],
    queryFn: () => unwrap(api.GET('/v1/machines/{id}', { params: { path: { id } } })),
    refetchInterval: POLL_MS,
  });
