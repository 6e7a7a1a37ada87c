// The volumes of the account: data volumes and kept root disks.
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';

export const volumesQuery = queryOptions({
  queryKey: ['volumes'],
  queryFn: async () => (await unwrap(api.GET('/v1/volumes'))).volumes,
  refetchInterval: POLL_MS,
});

/** The queries that change when a volume does. */
export const CHANGED_BY_VOLUMES = ['volumes', 'machines', 'quotas', 'activity'] as const;
