// Repeats a request that the service refused because the account sent too many.
import { ApiProblem } from '../api/client.ts';

const wait = (sec: number) => new Promise<void>((resolve) => setTimeout(resolve, sec * 1_000));

/** Only for requests that may run twice. After status 429 it waits as long as the answer says, and sends again. */
export async function withinRateLimit<T>(send: () => Promise<T>, pause = wait): Promise<T> {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof ApiProblem && error.status === 429)) throw error;
      await pause(error.retryAfterSec ?? 1);
    }
  }
}
