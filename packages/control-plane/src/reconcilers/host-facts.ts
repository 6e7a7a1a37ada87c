// Keeps the rows of hosts up to date while their agents stay connected. For example, the list of images changes when
// images are built or removed. Also renews the certificates of their agents in time.
import type { App } from '../app.ts';
import { renewAgentCertificate } from '../fleet/renew.ts';
import { registerHost } from '../hosts/store.ts';
import type { Compared, Comparison } from './rounds.ts';

/** How often a host is asked at most, in milliseconds. In a small fleet a new image is known after this time. */
const FACTS_MS = 5_000;

/**
 * Asks a host for its current version, size and images, updates its row, and renews its certificate when it is time.
 */
export function factComparison(app: App): Comparison {
  const { reconcileJobsMs, compareMs } = app.config.timing;
  return {
    name: 'facts',
    pauseMs: { shortest: Math.min(reconcileJobsMs, FACTS_MS), longest: compareMs.others },
    begin: (hostId) => () => refreshHost(app, hostId),
  };
}

async function refreshHost(app: App, hostId: string): Promise<Compared> {
  const client = app.hosts.client(hostId);
  const info = await client.info();
  // If the id differs, another agent listens on the socket now, which local-host.ts notices.
  if (info.host_id === hostId) await registerHost(app.db, info);
  app.hostTable.expireIfChanged(info);
  await renewAgentCertificate(app, hostId, client);
  return { size: 0, isSettled: true };
}
