// Tracks from the outcome of this page's requests whether the service is reachable. While it is not, the shell shows a
// line above every page.
import { useSyncExternalStore } from 'react';
import { Listeners } from '../ui/listeners.ts';

/** A single failure may be a broken connection, so it does not count as an outage yet. */
const FAILURES_UNTIL_DOWN = 2;

let failures = 0;
const listeners = new Listeners();

/** Call it after each request. `isAnswer`: false when there was no answer, or only one from a proxy. */
export function noteRequest(isAnswer: boolean): void {
  failures = isAnswer ? 0 : failures + 1;
  listeners.call();
}

export const isDown = (): boolean => failures >= FAILURES_UNTIL_DOWN;

export const useIsDown = (): boolean => useSyncExternalStore(listeners.subscribe, isDown);
