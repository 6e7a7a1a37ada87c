// Tells replicas of changes in the database at once, by PostgreSQL's LISTEN and NOTIFY. It needs a connection of its
// own, because a pooled one changes its user all the time. What is sent while the connection is broken is lost, so
// every subscriber is called after each reconnect, and also looks for changes by itself from time to time.
import { sql } from 'kysely';
import pg from 'pg';
import { sleep } from '../concurrency.ts';
import type { Log } from '../log.ts';
import { CONNECT_MS, type Db, type Tx } from './database.ts';
import { Primary } from './primary.ts';
import { readDatabaseUrl } from './servers.ts';

/** The names of the channels. A payload is short: the id of what changed, or nothing. */
export const CHANNELS = {
  /** A host was added, changed, removed, lost or found again. */
  hosts: 'sandbar_hosts',
  /** A replica has given hosts back, or has begun to look for hosts. */
  leases: 'sandbar_leases',
  /** A host should be compared with its rows soon. The payload is its id. */
  suspicions: 'sandbar_suspicions',
} as const;
export type Channel = (typeof CHANNELS)[keyof typeof CHANNELS];

/** Sends a notification. In a transaction, it is sent when the transaction commits. */
export async function notify(db: Db | Tx, channel: Channel, payload = ''): Promise<void> {
  await sql`select pg_notify(${channel}, ${payload})`.execute(db);
}

export type Notifications = {
  /**
   * Calls `onChange` with the payload of each notification, and with undefined when notifications may have been lost.
   * `onChange` must not throw.
   */
  subscribe(channel: Channel, onChange: (payload: string | undefined) => void): void;
  /** Closes the connection. Nothing is called afterwards. */
  close(): Promise<void>;
};

/** How often the connection is tested, in milliseconds. A connection may break without either side noticing. */
const TEST_MS = 10_000;
const TEST_ANSWER_MS = 4_000;
const RECONNECT_MS = { first: 100, longest: 2_000 };

/** Connects in the background, and reconnects whenever the connection breaks, until `close`. */
export function openNotifications(databaseUrl: string, log: Log): Notifications {
  const subscribers = new Map<Channel, ((payload: string | undefined) => void)[]>();
  const closing = new AbortController();
  const tell = (channel: Channel, payload: string | undefined) => {
    if (!closing.signal.aborted) for (const onChange of subscribers.get(channel) ?? []) onChange(payload);
  };
  const onConnected = () => {
    for (const channel of Object.values(CHANNELS)) tell(channel, undefined);
  };
  const onNotification = ({ channel, payload }: pg.Notification) => tell(channel as Channel, payload ?? '');
  const listening = listen(databaseUrl, log, closing.signal, { onConnected, onNotification });
  return {
    subscribe: (channel, onChange) => void subscribers.set(channel, [...(subscribers.get(channel) ?? []), onChange]),
    close: async () => {
      closing.abort();
      await listening;
    },
  };
}

type Handlers = { onConnected(): void; onNotification(message: pg.Notification): void };

async function listen(databaseUrl: string, log: Log, signal: AbortSignal, handlers: Handlers): Promise<void> {
  const { servers, config } = readDatabaseUrl(databaseUrl);
  const settings = {
    ...config,
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: TEST_ANSWER_MS,
    keepAlive: true,
    application_name: 'sandbar-notifications',
  };
  // Only the server that accepts writes passes on notifications.
  const primary = new Primary(servers, settings, undefined, () => undefined);
  let pauseMs = RECONNECT_MS.first;
  while (!signal.aborted) {
    await primary.find().catch(() => undefined);
    const client = new pg.Client({ ...settings, ...primary.server });
    const broken = new AbortController();
    client.on('error', () => broken.abort());
    client.on('end', () => broken.abort());
    client.on('notification', handlers.onNotification);
    try {
      await client.connect();
      for (const channel of Object.values(CHANNELS)) await client.query(`listen ${channel}`);
      pauseMs = RECONNECT_MS.first;
      handlers.onConnected();
      await testUntilBroken(client, AbortSignal.any([signal, broken.signal]));
    } catch (error) {
      log.debug({ err: error }, 'the connection for notifications broke');
      primary.doubt();
    }
    await client.end().catch(() => undefined);
    await sleep(pauseMs, signal);
    pauseMs = Math.min(pauseMs * 2, RECONNECT_MS.longest);
  }
}

/** Returns when `signal` is aborted. Throws when the database does not answer any more. */
async function testUntilBroken(client: pg.Client, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await sleep(TEST_MS, signal);
    if (!signal.aborted) await client.query('select 1');
  }
}
