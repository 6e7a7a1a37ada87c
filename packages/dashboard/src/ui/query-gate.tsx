// Shows a page's content once its query has data. Before that it says that the query is loading or has failed.
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { ApiProblem, isAway } from '../api/client.ts';
import { Failure } from './failure.tsx';
import { Problem } from './problem.tsx';

/** `what`: the subject of the sentences, such as "volumes". */
type Props<T> = { query: UseQueryResult<T>; what: string; children: (data: T) => ReactNode };

/** The shell says that the service does not answer, and it goes to the sign-in page at the end of the session. */
const isSaidByShell = (error: Error): boolean =>
  error instanceof ApiProblem && (error.status === 401 || isAway(error.status));

/** After the first answer, a later failure keeps the last answer on the page. A line above it says why it is old. */
export function QueryGate<T>({ query, what, children }: Props<T>) {
  if (query.data !== undefined) {
    const isShown = query.error !== null && !isSaidByShell(query.error);
    return (
      <>
        {isShown ? <Failure error={query.error} subject={`Cannot refresh ${what}`} /> : null}
        {children(query.data)}
      </>
    );
  }
  if (query.error === null) return <p role="status">Loading {what}…</p>;
  return <Problem title={`Cannot show ${what}`} error={query.error} onRetry={() => void query.refetch()} />;
}
