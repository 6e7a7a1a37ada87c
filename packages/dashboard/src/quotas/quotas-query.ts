// How much of each quota the account uses, and its limits.
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';

export const quotasQuery = queryOptions({
  queryKey: ['quotas'],
  queryFn: () => unwrap(api.GET('/v1/quotas')),
  refetchInterval: POLL_MS,
});
