// The requests for a machine's jobs and how often they are repeated.
import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { POLL_MS } from '../../api/query-client.ts';

export type Job = Schemas['Exec'];
export type JobId = { machineId: string; execId: string };
export type StreamName = 'stdout' | 'stderr';

/** A machine may have thousands of jobs, so the list is read in pages. */
const PAGE_SIZE = 100;

export const jobsQuery = (machineId: string) =>
  infiniteQueryOptions({
    queryKey: ['jobs', machineId],
    queryFn: ({ pageParam, signal }) =>
      unwrap(
        api.GET('/v1/machines/{id}/execs', {
          params: { path: { id: machineId }, query: { page_size: PAGE_SIZE, ...(pageParam && { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: '',
    getNextPageParam: ({ next_cursor }) => next_cursor || undefined,
    // Each poll reads all loaded pages again, so with more pages the polls are further apart.
    refetchInterval: ({ state }) => POLL_MS * (state.data?.pages.length ?? 1),
  });

/** A job that has ended does not change, except that its output expires at some point. */
const ENDED_POLL_MS = 30_000;

export const jobQuery = ({ machineId, execId }: JobId) =>
  queryOptions({
    queryKey: ['jobs', machineId, execId],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET('/v1/machines/{id}/execs/{exec_id}', {
          params: { path: { id: machineId, exec_id: execId } },
          signal,
        }),
      ),
    refetchInterval: ({ state: { data } }) => (data && data.status !== 'running' ? ENDED_POLL_MS : POLL_MS),
  });
