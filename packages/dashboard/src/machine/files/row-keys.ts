// The arrow keys, Home and End move the focus between the names in the list of files.
import type { KeyboardEvent } from 'react';

const STEPS: Record<string, (at: number, count: number) => number> = {
  ArrowDown: (at) => at + 1,
  ArrowUp: (at) => at - 1,
  Home: () => 0,
  End: (_at, count) => count - 1,
};

/**
 * Handles a key in the list when the focus is on a name. Home and End go to the first and last row in the document,
 * because only the rows near the screen are in it.
 */
export function moveBetweenRows(event: KeyboardEvent<HTMLElement>): void {
  const step = STEPS[event.key];
  const names = [...event.currentTarget.querySelectorAll<HTMLElement>('td:first-child a')];
  const at = names.indexOf(document.activeElement as HTMLElement);
  const next = step && at >= 0 ? names[step(at, names.length)] : undefined;
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
}
