// Generates the OpenAPI documents without a running service. The HTTP server is built with a database and a host client
// that never connect, because only its routes are read.
import { Registry } from 'prom-client';
import type { App } from '../app.ts';
import { CredentialWatch } from '../auth/credential-watch.ts';
import { readConfig } from '../config.ts';
import { openDatabase } from '../db/database.ts';
import { createHostClient } from '../hosts/client.ts';
import { createHosts } from '../hosts/hosts.ts';
import { buildServer } from '../http/server.ts';
import { createLog } from '../log.ts';
import { createRequestCounter } from '../metrics/requests.ts';

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
  const hostClient = createHostClient(config.hostAgentSocket);
  const db = openDatabase(config.databaseUrl, log);
  const closing = new AbortController().signal;
  const app: App = {
    config,
    log,
    db,
    hosts: createHosts(hostClient),
    credentials: new CredentialWatch(db, log, closing),
    reconcileSoon: () => undefined,
    closing,
  };
  const server = await buildServer(app, createRequestCounter(new Registry()));
  try {
    return { api: server.swagger(), admin: server.adminSwagger() };
  } finally {
    await server.close();
    hostClient.close();
  }
}
