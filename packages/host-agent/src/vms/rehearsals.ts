// Warms up a new guest with rehearsals, which exercise the identity step and a job and undo both at once. A guest may
// hang in one, so there is a way to give up.
import type { Guest } from '../guest/guest.ts';

/** Runs `times` warm-up rounds. Rejects when a round fails. When `giveUp` aborts, closes the session and rejects. */
export async function rehearse(guest: Guest, times: number, giveUp: AbortSignal): Promise<void> {
  const close = () => guest.close();
  giveUp.addEventListener('abort', close);
  try {
    for (let done = 0; done < times; done++) {
      giveUp.throwIfAborted();
      await guest.rehearse();
    }
  } finally {
    giveUp.removeEventListener('abort', close);
  }
}
