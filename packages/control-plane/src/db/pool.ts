// A pool of connections to the server that accepts writes. The pool of the package pg opens and keeps the connections.
// This module chooses their server and proves each one before its first use. When something went wrong with one
// connection, it proves the others again before their next use, because a failover breaks all of them, and not all of
// them notice it.
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { DatabaseAway, isDatabaseAway, isReadOnlyServer } from './failures.ts';
import { Primary } from './primary.ts';
import { proveConnection } from './proof.ts';
import type { Server } from './servers.ts';

export type PoolSettings = {
  servers: readonly Server[];
  config: pg.PoolConfig;
  /** The role that each connection must have; undefined: any. */
  role: string | undefined;
  /** Called when an idle connection breaks. */
  onIdleError: (error: Error) => void;
  /** Called with the name of a server when it has become the primary. */
  onMove: (server: string) => void;
};

/** A connection that the caller has taken. `noteFailure` must get every error of its statements. */
export type Lease = { client: pg.PoolClient; noteFailure: (error: unknown) => void; release: () => void };

/** pg-pool's error message when all connections were in use for too long. It says nothing about the server. */
const ALL_IN_USE = 'timeout exceeded when trying to connect';

export class ConnectionPool {
  readonly #settings: PoolSettings;
  readonly #primary: Primary;
  readonly #pool: pg.Pool;
  /** When each connection was proven, and since when older proofs count no more, as numbers that only grow. */
  readonly #provenAt = new WeakMap<pg.ClientBase, number>();
  #now = 0;
  #doubtedAt = 0;
  #rejectedAt = 0;

  constructor(settings: PoolSettings) {
    const { servers, config, role, onIdleError, onMove } = settings;
    this.#settings = settings;
    const primary = new Primary(servers, config, role, (server) => {
      this.#reject();
      onMove(server);
    });
    this.#primary = primary;
    class Client extends pg.Client {
      constructor() {
        // Not the options that pg's pool passes: it hides the password from copies of them.
        super({ ...config, ...primary.server });
      }
    }
    this.#pool = new pg.Pool({ ...config, Client, onConnect: (client) => this.#prove(client) });
    // Without this listener, an idle connection that breaks would crash the process. The next statement opens a new
    // connection.
    this.#pool.on('error', (error) => {
      this.#doubt();
      onIdleError(error);
    });
    // The same for a connection that breaks between two statements of a transaction. There is nothing else to do: the
    // next statement fails and reports it.
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
  }

  /** Throws `DatabaseAway` if no connection to a server that accepts writes can be had. */
  async take(): Promise<Lease> {
    for (let isRepeated = false; ; isRepeated = true) {
      await this.#primary.find();
      try {
        return this.#lease(await this.#takeProven());
      } catch (error) {
        if (error instanceof Error && error.message === ALL_IN_USE) throw error;
        this.#doubt();
        // The server that was found last has just failed. Another one may have taken its place already.
        if (isRepeated || !this.#primary.hasSeveral) throw new DatabaseAway(error);
      }
    }
  }

  end(): Promise<void> {
    return this.#pool.end();
  }

  /** The numbers of connections, and of those who wait for one. */
  size(): { total: number; idle: number; waiting: number } {
    const { totalCount: total, idleCount: idle, waitingCount: waiting } = this.#pool;
    return { total, idle, waiting };
  }

  async #takeProven(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await this.#pool.connect();
      const provenAt = this.#provenAt.get(client) ?? 0;
      if (provenAt > this.#doubtedAt) return client;
      if (provenAt > this.#rejectedAt && (await this.#isProvenAgain(client))) return client;
      drop(client);
    }
  }

  async #isProvenAgain(client: pg.PoolClient): Promise<boolean> {
    try {
      await this.#prove(client);
      return true;
    } catch {
      // The other connections of this age are not worth a wait each.
      this.#reject();
      return false;
    }
  }

  async #prove(client: pg.ClientBase): Promise<void> {
    await proveConnection(client, this.#settings.role);
    this.#provenAt.set(client, ++this.#now);
  }

  #lease(client: pg.PoolClient): Lease {
    let isBroken = false;
    const noteFailure = (error: unknown) => {
      if (!isDatabaseAway(error)) return;
      isBroken = true;
      if (isReadOnlyServer(error)) this.#reject();
      this.#doubt();
    };
    return { client, noteFailure, release: () => (isBroken ? drop(client) : client.release()) };
  }

  #doubt(): void {
    this.#doubtedAt = ++this.#now;
    this.#primary.doubt();
  }

  #reject(): void {
    this.#rejectedAt = this.#doubtedAt = ++this.#now;
  }
}

/**
 * Closes a connection. Its socket is destroyed first: a farewell to a server that has vanished would be sent again and
 * again, and the place in the pool would stay taken.
 */
function drop(client: pg.PoolClient): void {
  socketOf(client).destroy();
  client.release(true);
}

export const socketOf = (client: pg.PoolClient): Duplex =>
  (client as unknown as { connection: { stream: Duplex } }).connection.stream;
