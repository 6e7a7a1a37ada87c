// What a host says about itself changes while its agent stays connected: images are built and removed. Its row follows.
import type { App } from '../app.ts';
import { registerHost } from '../hosts/store.ts';

/** How long an image that was built may stay unlisted, at most. One small call and one row. */
export const FACTS_MS = 5_000;

/** Asks every connected host for its facts and records them. */
export async function refreshHosts(app: App): Promise<void> {
  for (const hostId of app.hosts.connectedIds()) {
    const info = await app.hosts.client(hostId).info();
    // Another agent took the socket over: the listener will notice and register it.
    if (info.host_id === hostId) await registerHost(app.db, info);
  }
}
