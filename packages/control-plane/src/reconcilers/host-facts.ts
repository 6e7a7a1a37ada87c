// What a host says about itself changes while its agent stays connected: images are built and removed. Its row follows.
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { registerHost } from '../hosts/store.ts';
import { attempt } from './attempt.ts';

/** How long an image that was built may stay unlisted, at most. One small call and one row. */
export const FACTS_MS = 5_000;
/** Hosts that are asked at the same time. */
const WIDTH = 8;

/** Asks every connected host for its facts and records them. A host that does not answer hides no other. */
export async function refreshHosts(app: App): Promise<void> {
  await forEachBounded(app.hosts.connectedIds(), WIDTH, (hostId) =>
    attempt(app, { host_id: hostId }, () => refreshHost(app, hostId)),
  );
}

async function refreshHost(app: App, hostId: string): Promise<void> {
  const info = await app.hosts.client(hostId).info();
  // Another agent took the socket over: the listener will notice and register it.
  if (info.host_id === hostId) await registerHost(app.db, info);
}
