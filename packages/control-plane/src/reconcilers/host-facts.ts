// Keeps the hosts' rows up to date while their agents stay connected. For example, the list of images changes when
// images are built or removed.
import type { App } from '../app.ts';
import { forEachBounded } from '../concurrency.ts';
import { registerHost } from '../hosts/store.ts';
import { attempt } from './attempt.ts';

/**
 * How often each host is asked, in milliseconds. A newly built image appears in the database after at most this time.
 * One pass costs a small call and one update for each host.
 */
export const FACTS_MS = 5_000;
/** How many hosts are asked at the same time. */
const WIDTH = 8;

/**
 * Asks every connected host for its current version, size and images, and updates its row. A failure concerning one
 * host is logged and does not affect the others.
 */
export async function refreshHosts(app: App): Promise<void> {
  await forEachBounded(app.hosts.connectedIds(), WIDTH, (hostId) =>
    attempt(app, { host_id: hostId }, () => refreshHost(app, hostId)),
  );
}

async function refreshHost(app: App, hostId: string): Promise<void> {
  const info = await app.hosts.client(hostId).info();
  // If the id differs, another agent listens on the socket now. The event listener notices this and registers the new
  // host.
  if (info.host_id === hostId) await registerHost(app.db, info);
}
