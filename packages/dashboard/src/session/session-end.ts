// Detects the end of the session. When any request is refused with 401, the page asks who is signed in, and the shell
// goes to the sign-in page. Code outside of React is told when the account has signed out or another one has signed in.
import { hashKey, type QueryClient } from '@tanstack/react-query';
import { ApiProblem } from '../api/client.ts';
import { Listeners } from '../ui/listeners.ts';
import { startAfresh } from './leave.ts';
import { type Account, accountQuery } from './session.ts';

const listeners = new Listeners();

/** Calls a listener each time that the signed-in account signs out or is replaced by another one. */
export const onSessionEnd = listeners.subscribe;

/** The id of the account that this document showed last; undefined when it showed none. */
let shown: string | undefined;

/** Whether this document showed another account before. */
export const isOther = ({ id }: Account): boolean => shown !== undefined && shown !== id;

/**
 * Watches all queries and mutations for as long as the page is open. A page that the browser restores from memory after
 * Back is loaded again, because the session may have ended since.
 */
export function watchSessionEnd(queryClient: QueryClient): void {
  const check = (error: unknown) => {
    if (error instanceof ApiProblem && error.status === 401) void queryClient.invalidateQueries(accountQuery);
  };
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) location.reload();
  });
  queryClient.getQueryCache().subscribe((event) => {
    if (event.type === 'updated' && event.action.type === 'error') check(event.action.error);
  });
  watchAccount(queryClient);
  queryClient.getMutationCache().subscribe((event) => {
    if (event.type === 'updated' && event.action.type === 'error') check(event.action.error);
  });
}

function watchAccount(queryClient: QueryClient): void {
  const accountHash = hashKey(accountQuery.queryKey);
  let signedIn: string | undefined;
  queryClient.getQueryCache().subscribe(({ type, query }) => {
    if (query.queryHash !== accountHash) return;
    const account: Account | null | undefined = type === 'removed' ? null : query.state.data;
    if (account?.id === signedIn) return;
    const hasEnded = signedIn !== undefined;
    signedIn = account?.id;
    if (hasEnded) listeners.call();
    if (!account) return;
    // Another account has signed in, for example in another tab. A new document shows nothing of the one before.
    if (isOther(account)) startAfresh('/machines');
    shown = account.id;
  });
}
