// Finds the server that accepts writes among the servers of the URL. All of them are asked at the same time, so a
// server that has vanished from the network delays nothing. If two accept writes, a failed primary was started again
// beside its successor. The one with the higher timeline is the successor, and the other one is never used, because
// what is written there is lost.
import { setTimeout as after } from 'node:timers/promises';
import pg from 'pg';
import { DatabaseAway, UnusableServer } from './failures.ts';
import { proveWithTimeline } from './proof.ts';
import { nameOfServer, type Server } from './servers.ts';

/** How long the other servers may still answer after the first one that accepts writes, in milliseconds. */
const OTHERS_MS = 250;
/** The pause after a search that found nothing, in milliseconds. Requests that come in the pause fail at once. */
const PAUSE_MS = 100;

type Found = { server: Server; timeline: number };

export class Primary {
  readonly #servers: readonly Server[];
  readonly #config: pg.ClientConfig;
  readonly #role: string | undefined;
  readonly #onMove: (server: string) => void;
  #current: Server | undefined;
  #last: Found | undefined;
  #search: Promise<Server> | undefined;
  #failure: { error: unknown; until: number } | undefined;

  /** `onMove` is called with the name of the server when another server has become the primary. */
  constructor(
    servers: readonly Server[],
    config: pg.ClientConfig,
    role: string | undefined,
    onMove: (server: string) => void,
  ) {
    this.#servers = servers;
    this.#config = config;
    this.#role = role;
    this.#onMove = onMove;
    // A single server needs no search: it is used, or there is no database.
    if (servers.length === 1) this.#current = servers[0];
  }

  /** The server that new connections go to: the one that was found last. */
  get server(): Server {
    return this.#current ?? this.#last?.server ?? this.#servers[0] ?? {};
  }

  get hasSeveral(): boolean {
    return this.#servers.length > 1;
  }

  /** Makes the next `find` search again, because something went wrong with the server that was found last. */
  doubt(): void {
    if (this.hasSeveral) this.#current = undefined;
  }

  /** Returns the server that accepts writes. Callers share one search. Throws `DatabaseAway` when there is none. */
  async find(): Promise<Server> {
    if (this.#current) return this.#current;
    if (this.#failure && performance.now() < this.#failure.until) throw this.#failure.error;
    this.#search ??= this.#searchAll().finally(() => {
      this.#search = undefined;
    });
    return this.#search;
  }

  async #searchAll(): Promise<Server> {
    try {
      const found = await this.#askAll();
      const isOther = this.#last !== undefined && this.#last.server !== found.server;
      this.#last = found;
      this.#current = found.server;
      this.#failure = undefined;
      if (isOther) this.#onMove(nameOfServer(found.server));
      return found.server;
    } catch (cause) {
      const error = new DatabaseAway(cause);
      this.#failure = { error, until: performance.now() + PAUSE_MS };
      throw error;
    }
  }

  async #askAll(): Promise<Found> {
    const found: Found[] = [];
    const asked = this.#servers.map(async (server) => void found.push(await this.#ask(server)));
    await Promise.any(asked);
    const late = new AbortController();
    const pause = after(OTHERS_MS, undefined, { signal: late.signal }).catch(() => undefined);
    await Promise.race([Promise.allSettled(asked), pause]);
    late.abort();
    const best = found.reduce((one, other) => (other.timeline > one.timeline ? other : one));
    return best;
  }

  /** Throws when the server does not answer, accepts no writes, or was left behind by a promotion. */
  async #ask(server: Server): Promise<Found> {
    const client = new pg.Client({ ...this.#config, ...server });
    // A failed connection emits this event besides rejecting the promise.
    client.on('error', () => undefined);
    try {
      await client.connect();
      const timeline = await proveWithTimeline(client, this.#role);
      if (timeline >= (this.#last?.timeline ?? 0)) return { server, timeline };
      throw new UnusableServer(
        `a former primary accepts writes: its timeline ${timeline} ended before ${this.#last?.timeline}`,
      );
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new UnusableServer(`${nameOfServer(server)}: ${reason}`, { cause: error });
    } finally {
      client.end().catch(() => undefined);
    }
  }
}
