// Reads the files of a machine again after a change, at most once a second.
import { queryClient } from '../../api/query-client.ts';
import { refreshAfterReads } from '../../api/refresh.ts';
import { filesKey } from './requests.ts';

const WAIT_MS = 1_000;
const planned = new Set<string>();

export function refreshFilesSoon(machineId: string): void {
  if (planned.has(machineId)) return;
  planned.add(machineId);
  setTimeout(() => {
    planned.delete(machineId);
    void refreshAfterReads(queryClient, filesKey(machineId));
  }, WAIT_MS);
}

export const refreshFiles = (machineId: string): Promise<void> =>
  queryClient.invalidateQueries({ queryKey: filesKey(machineId) });
