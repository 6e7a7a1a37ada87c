// Reads queries again after a change, without cancelling a read under way. If each change cancelled it, a list that
// takes long to read would never be shown while changes keep coming.
import { hashKey, type QueryClient, type QueryKey } from '@tanstack/react-query';

const waiting = new Map<string, Promise<void>>();

/**
 * Waits for the reads of these queries that are under way, then reads them again. Calls during the wait are answered by
 * the same read.
 */
export function refreshAfterReads(client: QueryClient, queryKey: QueryKey): Promise<void> {
  const name = hashKey(queryKey);
  const planned = waiting.get(name);
  if (planned) return planned;
  const refresh = async () => {
    // With `cancelRefetch: false` this starts nothing: it joins the reads that are under way.
    await client.refetchQueries({ queryKey, fetchStatus: 'fetching' }, { cancelRefetch: false });
    waiting.delete(name);
    await client.invalidateQueries({ queryKey });
  };
  const promise = refresh();
  waiting.set(name, promise);
  return promise;
}
