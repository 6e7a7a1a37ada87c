// Generates the OpenAPI documents without a running service. The HTTP server is built with a database and a host client
// that never connect, because only its routes are read.
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
import { Registry } from 'prom-client';
import type { App } from '../app.ts';
import { CredentialWatch } from '../auth/credential-watch.ts';
import { readConfig } from '../config.ts';
import { openDatabase } from '../db/database.ts';
import { createFleet } from '../fleet/fleet.ts';
import { createHostClient } from '../hosts/client.ts';
import { HostTable } from '../hosts/host-table.ts';
import { createHosts } from '../hosts/hosts.ts';
import { createPresence } from '../hosts/presence.ts';
import { createRemovedHost } from '../hosts/removed-host.ts';
import { buildServer } from '../http/server.ts';
import { createLog } from '../log.ts';
import { createMetrics } from '../metrics/metrics.ts';

const NOBODY = '00000000-0000-0000-0000-000000000000';

/** The OpenAPI documents of this version: of the public API, and of the operator's routes. */
export async function describeApis(): Promise<{ api: unknown; admin: unknown }> {
  const config = readConfig(
    {
      SANDBAR_HOME: '/nonexistent',
      SANDBAR_DATABASE_URL: 'postgres://localhost/none',
      SANDBAR_SECRET: 'nothing is ever signed with this one',
    },
    false,
  );
  const log = createLog('silent');
  const db = openDatabase(config.databaseUrl, log);
  const clients = { local: createHostClient({ socketPath: config.hostAgentSocket }), clientOf: createRemovedHost };
  const hosts = createHosts(db, clients, config.timing.hostSeenMs);
  const closing = new AbortController().signal;
  const app: App = {
    config,
    log,
    metrics: createMetrics(new Registry()),
    tracing: NO_TRACING,
    db,
    hosts,
    presence: createPresence(db, NOBODY, config.timing.hostSeenMs, () => undefined),
    hostTable: new HostTable(db, config.timing.hostFactsMs),
    replicaId: NOBODY,
    fleet: createFleet(config, db),
    objects: undefined,
    credentials: new CredentialWatch(db, log, closing),
    reconcileSoon: () => undefined,
    compareSoon: () => undefined,
    draining: closing,
    closing,
    cutoff: closing,
  };
  const server = await buildServer(app);
  try {
    return { api: server.swagger(), admin: server.adminSwagger() };
  } finally {
    await server.close();
    hosts.close();
  }
}
