// Rehearsals of a guest that nobody knows yet: one that hangs in them must not hold up whoever waits for it.
import type { Guest } from '../guest/guest.ts';

/** Goes through the rehearsal some times. Rejects when one fails, and, closing the session, when `giveUp` fires. */
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
