// The title of the browser's tab.
import { useEffect } from 'react';

/** A name from a user goes through `isolate` first. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Sandbar`;
    return () => {
      document.title = 'Sandbar';
    };
  }, [title]);
}
