// Shows a line above the page while the service does not answer. The page keeps what it shows.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import { useIsDown } from '../api/connection.ts';
import { POLL_MS } from '../api/query-client.ts';
import { accountQuery } from '../session/session.ts';
import styles from './outage-line.module.css';

/** How often every page asks whether the session still exists. */
const SESSION_POLL_MS = 30_000;

export function OutageLine() {
  const isDown = useIsDown();
  useQuery({ ...accountQuery, refetchInterval: isDown ? POLL_MS : SESSION_POLL_MS });
  useRefreshAfter(isDown);
  return (
    <div role="status" className={styles.line}>
      {isDown ? 'The service does not answer. The page shows its last answers, and asks again.' : ''}
    </div>
  );
}

/** Reads everything again when an outage ends, because not all pages poll. */
function useRefreshAfter(isDown: boolean): void {
  const queryClient = useQueryClient();
  const wasDown = useRef(false);
  useEffect(() => {
    if (wasDown.current && !isDown) void queryClient.invalidateQueries();
    wasDown.current = isDown;
  }, [isDown, queryClient]);
}
