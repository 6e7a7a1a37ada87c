// Whether the window is as narrow as a phone. The width is the same as in data-table.module.css.
import { useSyncExternalStore } from 'react';

const narrow = window.matchMedia('(max-width: 600px)');

function subscribe(listener: () => void): () => void {
  narrow.addEventListener('change', listener);
  return () => narrow.removeEventListener('change', listener);
}

export const useNarrow = (): boolean => useSyncExternalStore(subscribe, () => narrow.matches);
