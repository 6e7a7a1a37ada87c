// Gives up a call to a guest that may hang. Such a call ends only when its session is closed.
import type { Guest } from '../guest/guest.ts';

/** Runs `work`, which calls the guest, and returns its result. When `giveUp` aborts, closes the session and rejects. */
export async function closeOnAbort<T>(guest: Guest, giveUp: AbortSignal, work: () => Promise<T>): Promise<T> {
  const close = () => guest.close();
  giveUp.addEventListener('abort', close);
  try {
    giveUp.throwIfAborted();
    return await work();
  } finally {
    giveUp.removeEventListener('abort', close);
  }
}
