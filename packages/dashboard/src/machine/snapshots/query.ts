// The snapshots of one machine.
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../../api/client.ts';
import { POLL_MS } from '../../api/query-client.ts';

export const machineSnapshotsQuery = (id: string) =>
  queryOptions({
    queryKey: ['machines', id, 'snapshots'],
    queryFn: async () => (await unwrap(api.GET('/v1/machines/{id}/snapshots', { params: { path: { id } } }))).snapshots,
    refetchInterval: POLL_MS,
  });
