// Notices that a host is gone while a long call to it is under way. A host that was just cut off still has open
// connections, on which a call would wait until its time-out.
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import { HostUnavailable } from './client.ts';

/** How many questions in a row a host may leave unanswered. One that is only busy answers one of them. */
const UNANSWERED_MAX = 3;

/**
 * Returns the result of `call`, a call to the host. While it takes longer than `doubtMs`, asks the host for its facts
 * from time to time. Throws `host_unavailable` when it leaves several questions in a row unanswered; the host may have
 * acted on the call. Asks no host of this computer, which cannot be cut off.
 */
export async function whileAnswering<T>(app: App, hostId: string, call: Promise<T>): Promise<T> {
  if (hostId === app.hosts.localId()) return call;
  const ended = new AbortController();
  const ask = async () => app.hosts.client(hostId).info();
  const doubt = async (): Promise<never> => {
    for (let unanswered = 0; ; ) {
      await sleep(app.config.timing.doubtMs, ended.signal);
      if (ended.signal.aborted) return new Promise<never>(() => undefined);
      const failure = await ask().then(
        () => undefined,
        (error: unknown) => error,
      );
      unanswered = failure === undefined ? 0 : unanswered + 1;
      if (unanswered === UNANSWERED_MAX) throw new HostUnavailable(true, failure);
    }
  };
  try {
    return await Promise.race([call, doubt()]);
  } finally {
    ended.abort();
    // Its answer comes too late: an operation that is undone has a new generation.
    call.catch(() => undefined);
  }
}
