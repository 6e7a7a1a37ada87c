// The requests of the operator's pages. Only a session of an operator account may make them.
import { queryOptions } from '@tanstack/react-query';
import { adminApi } from '../api/admin-client.ts';
import { unwrap } from '../api/client.ts';

const POLL_MS = 5_000;

export const accountsQuery = queryOptions({
  queryKey: ['operator', 'accounts'],
  queryFn: async () => (await unwrap(adminApi.GET('/admin/v1/accounts'))).accounts,
  refetchInterval: POLL_MS,
});

export const accountDetailsQuery = (id: string) =>
  queryOptions({
    queryKey: ['operator', 'account', id],
    queryFn: () => unwrap(adminApi.GET('/admin/v1/accounts/{id}', { params: { path: { id } } })),
    refetchInterval: POLL_MS,
  });

export const hostsQuery = queryOptions({
  queryKey: ['operator', 'hosts'],
  queryFn: async () => (await unwrap(adminApi.GET('/admin/v1/hosts'))).hosts,
  refetchInterval: POLL_MS,
});

/** An audit takes seconds and reads everything, so it is repeated only when the person asks for it. */
export const auditQuery = queryOptions({
  queryKey: ['operator', 'audit'],
  queryFn: () => unwrap(adminApi.GET('/admin/v1/audit')),
  staleTime: Number.POSITIVE_INFINITY,
  refetchOnWindowFocus: false,
});

export const failedOperationsQuery = queryOptions({
  queryKey: ['operator', 'failed-operations'],
  queryFn: async () => (await unwrap(adminApi.GET('/admin/v1/failed-operations'))).operations,
  refetchInterval: POLL_MS,
});
