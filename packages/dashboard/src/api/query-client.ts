// How answers of the API are cached and how failed requests are retried.
import { QueryClient } from '@tanstack/react-query';
import { ApiProblem, isAway } from './client.ts';

/** Pages must show a change within 3 seconds, so they poll faster than that. */
export const POLL_MS = 2_000;

/**
 * Only an unreachable service, a rate limit and a gateway error are retried, because a retry cannot change any other
 * error.
 */
const isTransient = (error: Error): boolean =>
  error instanceof ApiProblem && (error.status === 429 || isAway(error.status));

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < 2 && isTransient(error),
      // Send requests also when the browser thinks that it is offline: the service may run on this computer.
      networkMode: 'always',
      refetchOnWindowFocus: true,
      staleTime: POLL_MS / 2,
    },
    mutations: { retry: false, networkMode: 'always' },
  },
});
