// Shows a page's content once its query has data. Before that it says that the query is loading or has failed.
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Problem } from './problem.tsx';

/** `what`: the subject of the sentences, such as "volumes". */
type Props<T> = { query: UseQueryResult<T>; what: string; children: (data: T) => ReactNode };

/**
 * After the first answer, a later failure keeps the last answer on the page: the shell shows during an outage that it
 * is old.
 */
export function QueryGate<T>({ query, what, children }: Props<T>) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.error === null) return <p role="status">Loading {what}…</p>;
  return <Problem title={`Cannot show ${what}`} error={query.error} onRetry={() => void query.refetch()} />;
}
