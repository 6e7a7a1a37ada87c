// Opens one connection outside the pools, for what needs a session of its own, such as LISTEN.
import pg from 'pg';
import { CONNECT_MS, KEEP_ALIVE_MS } from './database.ts';
import { Primary } from './primary.ts';
import { proveConnection } from './proof.ts';
import { readDatabaseUrl } from './servers.ts';

/**
 * Connects to the server of `url` that accepts writes, with the role of the URL. `settings` are added to those of the
 * URL. The caller ends the connection, and opens a new one when this one breaks. Throws when no server accepts writes.
 */
export async function connectToPrimary(url: string, settings: pg.ClientConfig): Promise<pg.Client> {
  const { servers, config } = readDatabaseUrl(url);
  const options = {
    ...config,
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    ...settings,
  };
  const server = await new Primary(servers, options, undefined, () => undefined).find();
  const client = new pg.Client({ ...options, ...server });
  // Without a listener, a connection that breaks would crash the process. The next statement reports it.
  client.on('error', () => undefined);
  try {
    await client.connect();
    await proveConnection(client, undefined);
  } catch (error) {
    client.end().catch(() => undefined);
    throw error;
  }
  return client;
}
