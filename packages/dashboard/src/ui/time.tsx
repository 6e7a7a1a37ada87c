// Shows a time relative to now and keeps it up to date. The tooltip has the exact time. All times of a page share one
// timer, and only those whose text changes are rendered again.
import { useSyncExternalStore } from 'react';
import { relativeTime } from './relative-time.ts';

const TICK_MS = 1_000;
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    for (const each of listeners) each();
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });

/** The date and time in the browser's time zone. A text that is not a date is returned as it is. */
export function exactTime(at: string): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? at : exact.format(date);
}

/** Whether a time has passed. The component renders again when the time comes. */
export const useIsPast = (at: string): boolean => useSyncExternalStore(subscribe, () => Date.parse(at) <= Date.now());

/** `at`: an ISO date and time, as the API writes them. */
export function Time({ at }: { at: string }) {
  const text = useSyncExternalStore(subscribe, () => relativeTime(at, Date.now()));
  return (
    <time dateTime={at} title={exactTime(at)}>
      {text}
    </time>
  );
}
