// Keeps the event stream of a host open while this replica holds the host's lease, and applies its events at once.
// Events are lost while the stream is interrupted. So whenever the stream opens, the host is compared with its rows.
import type { HostEvent } from '@sandbar/contract/host-api.ts';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import { settleJob } from '../execs/settle.ts';
import { noticeReport } from '../machines/observe.ts';

export type EnterSync = () => Promise<() => void>;

/**
 * Listens until `signal` is aborted, and reconnects after errors. `enterSync` waits until the host may send its initial
 * state, and returns what to call afterwards. Never throws.
 */
export async function listenToHost(app: App, hostId: string, enterSync: EnterSync, signal: AbortSignal): Promise<void> {
  const { first, longest } = app.config.timing.reconnectMs;
  let pauseMs = first;
  let isToldAway = false;
  while (!signal.aborted) {
    let failure: unknown;
    try {
      await listenOnce(app, hostId, enterSync, signal, () => {
        pauseMs = first;
        isToldAway = false;
      });
    } catch (error) {
      failure = error;
    }
    if (signal.aborted) break;
    if (failure !== undefined && !isToldAway) {
      app.log.warn({ err: failure, host_id: hostId }, 'the host agent does not answer; trying again until it does');
      isToldAway = true;
    }
    await app.presence.noteAway(hostId).catch((err: unknown) => {
      app.log.debug({ err, host_id: hostId }, 'that a host is away was not recorded yet');
    });
    await sleep(pauseMs, signal);
    pauseMs = Math.min(pauseMs * 2, longest);
  }
  app.presence.forget(hostId);
}

async function listenOnce(
  app: App,
  hostId: string,
  enterSync: EnterSync,
  signal: AbortSignal,
  onSynced: () => void,
): Promise<void> {
  const client = app.hosts.client(hostId);
  const info = await client.info();
  if (info.host_id !== hostId) throw new Error(`The agent of another host answers: ${info.host_id}.`);
  // Only hosts that answer wait for each other.
  const leaveSync = await enterSync();
  const silence = new AbortController();
  const watch = setTimeout(() => silence.abort(), app.config.timing.eventSilenceMs);
  let isSynced = false;
  try {
    for await (const event of client.events(AbortSignal.any([signal, silence.signal]))) {
      watch.refresh();
      app.presence.noteSeen(hostId);
      if (event.type === 'synced') {
        isSynced = true;
        leaveSync();
        await noteSynced(app, hostId);
        onSynced();
      } else if (isSynced) {
        await applyEvent(app, hostId, event);
      }
      // The reports before that are the initial state, which the comparison reads as well.
    }
  } finally {
    clearTimeout(watch);
    leaveSync();
    app.hosts.setListened(hostId, false);
  }
}

async function noteSynced(app: App, hostId: string): Promise<void> {
  await app.presence.noteBack(hostId);
  app.hosts.setListened(hostId, true);
  app.log.info({ host_id: hostId }, 'connected to the host agent');
  // The comparison also records the facts of the host.
  app.compareSoon(hostId);
  app.reconcileSoon();
}

/** Applies one event. If that fails, the host is compared with its rows instead. */
async function applyEvent(app: App, hostId: string, event: HostEvent): Promise<void> {
  try {
    if (event.type === 'machine') await noticeReport(app, hostId, event.machine);
    if (event.type === 'job') await settleJob(app.db, event.job);
  } catch (error) {
    app.log.warn({ err: error, event: event.type, host_id: hostId }, 'an event of the host could not be applied yet');
    app.compareSoon(hostId);
  }
}
