// Finds the host of this computer: its agent tells its id over the Unix socket, and this replica registers the host.
// The agent may report another id later, if it was started with another data directory.
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { HostClient } from './client.ts';
import { registerHost } from './store.ts';

/**
 * The longest pause between two questions while the agent does not answer, in milliseconds. It is short, because
 * requests for machines are refused until the agent has answered, and a question on a Unix socket costs next to
 * nothing.
 */
const LONGEST_PAUSE_MS = 250;

/** Asks the agent until `signal` is aborted. `onFound` is called when the id is known or has changed. Never throws. */
export async function watchLocalHost(
  app: App,
  local: HostClient,
  onFound: () => void,
  signal: AbortSignal,
): Promise<void> {
  const { reconnectMs, hostPollMs } = app.config.timing;
  let pauseMs = reconnectMs.first;
  while (!signal.aborted) {
    try {
      const info = await local.info();
      if (info.host_id !== app.hosts.localId()) {
        await registerHost(app.db, info);
        app.hosts.recognise(info.host_id);
        await app.hosts.reload();
        onFound();
      }
      pauseMs = hostPollMs;
    } catch (err) {
      app.log.debug({ err }, 'the host agent of this computer does not answer');
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    }
    await sleep(pauseMs, signal);
  }
}
