// The hosts of the fleet, as this replica knows them: a client for each, and which of them are reachable. It is a copy
// of the rows, which is read again when a notification says that they changed, and from time to time. Requests go from
// any replica directly to the host. Only one replica listens to a host's events and compares it with the rows.
import { sql } from 'kysely';
import type { Db } from '../db/database.ts';
import { type HostClient, HostUnavailable } from './client.ts';
import { createRemovedHost } from './removed-host.ts';

/** A host on another computer. `address`: HOST:PORT of its agent. */
export type RemoteHost = { id: string; address: string };
export type HostClients = {
  /** The client of the agent on this computer; undefined if there is none. */
  local: HostClient | undefined;
  /** Creates a client of a host on another computer. It connects at the first call. */
  clientOf: (host: RemoteHost) => HostClient;
};

export type Hosts = {
  /** Returns the client of a host. Throws `host_unavailable` if this replica does not know the host. */
  client(hostId: string): HostClient;
  /** Ids of the hosts that can take machines and requests: a replica has reached them lately, and they are not removed. */
  reachableIds(): readonly string[];
  /**
   * Ids of the hosts on which operations can be attempted: those that are reachable, and those that were removed, where
   * nothing is left to do.
   */
  operableIds(): readonly string[];
  isOperable(hostId: string): boolean;
  /** Ids of the hosts whose events this replica gets: their event stream is open and has sent the initial state. */
  listenedIds(): string[];
  setListened(hostId: string, isListened: boolean): void;
  /** Closes the connections to a host on another computer that carry no call. The next call opens a new one. */
  closeIdle(hostId: string): void;
  /** The client of the agent on this computer; undefined if there is none. */
  local: HostClient | undefined;
  /** The id of the host of this computer; undefined until its agent has answered. */
  localId(): string | undefined;
  /** Stores the id of the host of this computer. Its agent reports a new id if it uses another data directory. */
  recognise(hostId: string): void;
  /** Hosts that another replica may reach although the replica that listens to them does not. */
  awayIds(): readonly string[];
  /** Reads the rows again. The rows are read after this call. Throws when the database does not answer. */
  reload(): Promise<void>;
  close(): void;
};

type Row = { id: string; address: string | null; removed: boolean; away: boolean; reachable: boolean };

/** Creates the list of hosts, which is empty until `reload`. `seenMs`: how long a host counts as reachable unseen. */
export function createHosts(db: Db, { local, clientOf }: HostClients, seenMs: number): Hosts {
  const remote = new Map<string, { address: string; client: HostClient }>();
  const listened = new Set<string>();
  const removedHost = createRemovedHost();
  let localId: string | undefined;
  let removed: ReadonlySet<string> = new Set();
  let reachable: readonly string[] = [];
  let operable: ReadonlySet<string> = new Set();
  let away: readonly string[] = [];

  const keepClients = (rows: readonly Row[]) => {
    const addresses = new Map(rows.flatMap(({ id, address }) => (address === null ? [] : [[id, address]])));
    for (const [id, known] of remote) {
      if (addresses.get(id) === known.address) continue;
      known.client.close();
      remote.delete(id);
    }
    for (const [id, address] of addresses) {
      if (!remote.has(id)) remote.set(id, { address, client: clientOf({ id, address }) });
    }
  };
  const read = async () => {
    const rows = await readRows(db, seenMs);
    const present = rows.filter((row) => !row.removed);
    keepClients(present);
    // A host without an address is reached from its own computer only.
    const ours = present.filter(({ id, address }) => address !== null || id === localId);
    removed = new Set(rows.filter((row) => row.removed).map(({ id }) => id));
    reachable = ours.filter((row) => row.reachable).map(({ id }) => id);
    away = ours.filter((row) => row.away).map(({ id }) => id);
    operable = new Set([...reachable, ...removed]);
  };
  return {
    client: (hostId) => {
      if (removed.has(hostId)) return removedHost;
      const client = hostId === localId ? local : remote.get(hostId)?.client;
      if (!client) throw new HostUnavailable(false);
      return client;
    },
    reachableIds: () => reachable,
    operableIds: () => [...operable],
    isOperable: (hostId) => operable.has(hostId),
    listenedIds: () => [...listened],
    setListened: (hostId, isListened) => {
      if (isListened) listened.add(hostId);
      else listened.delete(hostId);
    },
    closeIdle: (hostId) => remote.get(hostId)?.client.closeIdle(),
    local,
    localId: () => localId,
    recognise: (hostId) => {
      localId = hostId;
    },
    awayIds: () => away,
    reload: inTurn(read),
    close: () => {
      local?.close();
      for (const { client } of remote.values()) client.close();
    },
  };
}

async function readRows(db: Db, seenMs: number): Promise<Row[]> {
  const { rows } = await sql<Row>`
    select id, address, removed_at is not null as removed, away_since is not null as away,
      removed_at is null and away_since is null
        and seen_at > now() - ${seenMs}::int * interval '1 millisecond' as reachable
    from hosts order by created_at, id`.execute(db);
  return rows;
}

/** Returns a function that never runs `work` twice at once. Calls that come while it runs share the next run. */
function inTurn(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  const run = (): Promise<void> => {
    running = work().finally(() => {
      running = undefined;
    });
    return running;
  };
  return () => {
    if (!running) return run();
    next ??= running
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        return run();
      });
    return next;
  };
}
