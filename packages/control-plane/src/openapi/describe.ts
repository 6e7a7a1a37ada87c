// Makes the OpenAPI document without a running service: it builds the server with a database and a host that are never
// used.
import type { App } from '../app.ts';
import { readConfig } from '../config.ts';
import { openDatabase } from '../db/database.ts';
import { createHostClient } from '../hosts/client.ts';
import { createHosts } from '../hosts/hosts.ts';
import { buildServer } from '../http/server.ts';
import { createLog } from '../log.ts';

/** The OpenAPI document of this version. */
export async function describeApi(): Promise<unknown> {
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
  const app: App = {
    config,
    log,
    db: openDatabase(config.databaseUrl, log),
    hosts: createHosts(hostClient),
    reconcileSoon: () => undefined,
    closing: new AbortController().signal,
  };
  const server = await buildServer(app, new Map());
  try {
    return server.swagger();
  } finally {
    await server.close();
    hostClient.close();
  }
}
