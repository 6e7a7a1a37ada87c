// The API keys of the account, without the keys themselves: the service keeps only their hashes.
import { queryOptions } from '@tanstack/react-query';
import { api, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';

export const apiKeysQuery = queryOptions({
  queryKey: ['api-keys'],
  queryFn: async () => (await unwrap(api.GET('/v1/api-keys'))).api_keys,
  refetchInterval: POLL_MS,
});
