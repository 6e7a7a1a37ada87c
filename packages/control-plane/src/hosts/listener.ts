// Keeps an event stream open to the host agent, registers the host and applies its events at once. Events are lost
// while the stream is interrupted. So whenever the stream opens again, the reconciler makes a pass.
import type { HostEvent } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import { settleJob } from '../execs/settle.ts';
import { noticeReport } from '../machines/observe.ts';
import { hastenOperations } from '../operations/store.ts';
import { registerHost } from './store.ts';

/** Listens until `signal` is aborted, and reconnects after errors. Never throws. */
export async function listenToHost(app: App, signal: AbortSignal): Promise<void> {
  const { first, longest } = app.config.timing.reconnectMs;
  let pauseMs = first;
  let toldAway = false;
  while (!signal.aborted) {
    try {
      await listenOnce(app, signal, () => {
        pauseMs = first;
        toldAway = false;
      });
    } catch (error) {
      if (!signal.aborted && !toldAway) {
        app.log.warn({ err: error }, 'the host agent does not answer; trying again until it does');
        toldAway = true;
      }
    }
    await sleep(pauseMs, signal);
    pauseMs = Math.min(pauseMs * 2, longest);
  }
}

async function listenOnce(app: App, signal: AbortSignal, onSynced: () => void): Promise<void> {
  const info = await app.hosts.local.info();
  await registerHost(app.db, info);
  app.hosts.recognise(info);
  const silence = new AbortController();
  const watch = setTimeout(() => silence.abort(), app.config.timing.eventSilenceMs);
  try {
    for await (const event of app.hosts.local.events(AbortSignal.any([signal, silence.signal]))) {
      watch.refresh();
      if (event.type === 'synced') {
        app.hosts.setConnected(info.host_id, true);
        app.log.info({ host_id: info.host_id }, 'connected to the host agent');
        onSynced();
        // Retry now the operations that failed because the host was unreachable.
        await hastenOperations(app.db, { hostId: info.host_id });
        app.reconcileSoon();
      } else {
        await applyEvent(app, info.host_id, event);
      }
    }
  } finally {
    clearTimeout(watch);
    app.hosts.setConnected(info.host_id, false);
  }
}

/** Applies one event. If that fails, the reconciler asks the host again later. */
async function applyEvent(app: App, hostId: string, event: HostEvent): Promise<void> {
  try {
    if (event.type === 'machine') await noticeReport(app, hostId, event.machine);
    if (event.type === 'job') await settleJob(app.db, event.job);
  } catch (error) {
    app.log.warn({ err: error, event: event.type }, 'an event of the host could not be applied yet');
    app.reconcileSoon();
  }
}
