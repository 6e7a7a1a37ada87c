// Remembers in this browser tab which terminals are open, so that a reload joins them again. A terminal's id opens
// nothing by itself: every connection needs a session and a new ticket, and neither is stored.
import type { SavedTerminal } from './live-terminal.ts';

/** `active`: the index of the tab that is shown. */
type SavedTerminals = { terminals: SavedTerminal[]; active: number };

const keyOf = (machineId: string): string => `sandbar.terminals.${machineId}`;

/** Undefined when no terminal of the machine was ever open in this browser tab. */
export function loadTerminals(machineId: string): SavedTerminals | undefined {
  const text = sessionStorage.getItem(keyOf(machineId));
  if (text === null) return undefined;
  try {
    const { terminals, active } = JSON.parse(text) as SavedTerminals;
    return { terminals: terminals.filter(({ id }) => typeof id === 'string'), active };
  } catch {
    // The stored text is not JSON of this format, so something else wrote it.
    return undefined;
  }
}

export function saveTerminals(machineId: string, saved: SavedTerminals): void {
  sessionStorage.setItem(keyOf(machineId), JSON.stringify(saved));
}

export function forgetTerminals(machineId: string): void {
  sessionStorage.removeItem(keyOf(machineId));
}
