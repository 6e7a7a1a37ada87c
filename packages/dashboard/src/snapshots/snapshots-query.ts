// The snapshots of all machines of the account.
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';

export const snapshotsQuery = queryOptions({
  queryKey: ['snapshots'],
  queryFn: async () => (await unwrap(api.GET('/v1/snapshots'))).snapshots,
  refetchInterval: POLL_MS,
});
