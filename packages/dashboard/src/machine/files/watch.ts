// Watches a folder for changes while the page is visible. A browser opens only a few connections to a server, so a
// hidden page closes its connection.
import type { FileEvent } from '@sandbar/contract/file.ts';
import { useEffect, useState, useSyncExternalStore } from 'react';
import { type EncodedPath, encodePath } from './path.ts';
import { refreshFilesSoon } from './refresh.ts';
import { fileUrl } from './requests.ts';

/** How often files are read again while there is no watch, for example because the machine has too many. */
const POLL_MS = 10_000;

/**
 * Refreshes the shown files when something in the folder changes or, with `only`, when that path changes. `isOn`:
 * whether the machine runs. Returns the polling interval for queries, or false while the watch is open.
 */
export function useWatch(machineId: string, folder: EncodedPath, isOn: boolean, only?: EncodedPath): number | false {
  const isVisible = useSyncExternalStore(onVisibilityChange, () => document.visibilityState === 'visible');
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isVisible || !isOn) return;
    const source = new EventSource(`${fileUrl(machineId, 'watch', folder)}&recursive=false`);
    source.onmessage = ({ data }: MessageEvent<string>) => {
      setOpen(true);
      if (concerns(JSON.parse(data) as FileEvent, only)) refreshFilesSoon(machineId);
    };
    source.onerror = () => setOpen(false);
    return () => {
      source.close();
      setOpen(false);
    };
  }, [machineId, folder, only, isOn, isVisible]);
  return isOpen ? false : POLL_MS;
}

/** A `ready` event has no path. It always causes a refresh, because changes before it were not reported. */
function concerns({ path, path_encoded, from, from_encoded }: FileEvent, only: EncodedPath | undefined): boolean {
  if (only === undefined || path === undefined) return true;
  return (
    (path_encoded ?? encodePath(path)) === only || (from !== undefined && (from_encoded ?? encodePath(from)) === only)
  );
}

function onVisibilityChange(notify: () => void): () => void {
  document.addEventListener('visibilitychange', notify);
  return () => document.removeEventListener('visibilitychange', notify);
}
