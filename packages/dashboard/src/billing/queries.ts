// The requests of the billing page.
import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../api/client.ts';
import type { LedgerKind } from './kinds.ts';
import { type Range, toQuery } from './range.ts';

const USAGE_POLL_MS = 30_000;
/** The service charges every half minute. */
const LEDGER_POLL_MS = 15_000;
const LEDGER_PAGE = 50;

// The generated types of these paths also include the text of a CSV answer, so these name the JSON answers.
type Usage = Schemas['Usage'];
type LedgerList = Schemas['LedgerList'];

export const usageQuery = (range: Range, groupBy: string) =>
  queryOptions({
    queryKey: ['billing', 'usage', range, groupBy],
    queryFn: async (): Promise<Usage> =>
      (await unwrap(
        api.GET('/v1/billing/usage', { params: { query: { ...toQuery(range), group_by: groupBy } } }),
      )) as Usage,
    refetchInterval: USAGE_POLL_MS,
  });

export const ledgerQuery = (kind: LedgerKind | undefined) =>
  infiniteQueryOptions({
    queryKey: ['billing', 'ledger', kind ?? 'all'],
    queryFn: async ({ pageParam }): Promise<LedgerList> => {
      const query = {
        page_size: LEDGER_PAGE,
        ...(kind ? { kind } : {}),
        ...(pageParam === '' ? {} : { cursor: pageParam }),
      };
      return (await unwrap(api.GET('/v1/billing/ledger', { params: { query } }))) as LedgerList;
    },
    initialPageParam: '',
    getNextPageParam: ({ next_cursor }) => (next_cursor === '' ? undefined : next_cursor),
    // A refetch reads all loaded pages, so polling stops once the person has loaded older entries.
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 1) > 1 ? false : LEDGER_POLL_MS),
  });

export const entryQuery = (id: string) =>
  queryOptions({
    queryKey: ['billing', 'entry', id],
    queryFn: () => unwrap(api.GET('/v1/billing/ledger/{id}', { params: { path: { id } } })),
    // Entries never change.
    staleTime: Number.POSITIVE_INFINITY,
  });

/** The newest entries of a kind. */
export async function newestEntries(kind: LedgerKind) {
  const query = { kind, page_size: 20 };
  return ((await unwrap(api.GET('/v1/billing/ledger', { params: { query } }))) as LedgerList).entries;
}
