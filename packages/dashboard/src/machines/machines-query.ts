// The account's machines as the API lists them. The file is apart from the page, so that other pages and the palette
// can use it without loading the page.
import { queryOptions, useQuery } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';

export const machinesQuery = queryOptions({
  queryKey: ['machines'],
  queryFn: async (): Promise<Schemas['Machine'][]> => (await unwrap(api.GET('/v1/machines'))).machines,
  refetchInterval: POLL_MS,
});

/** For the rows of a list whose page polls `machinesQuery`: a timer in each row would send many more requests. */
export const loadedMachinesQuery = {
  ...machinesQuery,
  refetchInterval: false,
  staleTime: Number.POSITIVE_INFINITY,
} as const;

/** Polls the machines for rows with `loadedMachinesQuery`. An answer renders only these rows again, not the page. */
export function useLoadMachines(): void {
  useQuery({ ...machinesQuery, notifyOnChangeProps: [] });
}
