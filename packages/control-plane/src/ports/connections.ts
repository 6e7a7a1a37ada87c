// The connections to ports of machines over which requests are relayed. Opening one costs a request to the host agent,
// so a connection is kept for a moment for the next request to the same port, whoever sends it: every request was
// authorised before, and node writes each one anew, so requests cannot mix.
import { Agent, type ClientRequest, type RequestOptions } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

export type PortTarget = { accountId: string; hostId: string; machineId: string; port: number };
/** Opens a connection to a port. Rejects with a `ServiceError`. The connection is destroyed when the machine stops. */
export type OpenPort = (target: PortTarget) => Promise<Duplex>;

/**
 * How long an idle connection is kept, milliseconds. Shorter than the 5 s after which the servers of Node, Gunicorn and
 * others close an idle connection.
 */
const IDLE_MS = 4_000;
/** The most idle connections to one port, and to all ports together. */
const IDLE_OF_PORT = 8;
const IDLE_OF_ALL = 512;

type PortRequestOptions = RequestOptions & { target?: PortTarget };

export class PortConnections extends Agent {
  readonly #open: OpenPort;
  /** Idle connections, the longest idle one first. */
  readonly #idle = new Map<Duplex, NodeJS.Timeout>();

  constructor(open: OpenPort) {
    super({ keepAlive: true, maxFreeSockets: IDLE_OF_PORT });
    this.#open = open;
  }

  /** The options of `http.request` for a request to a port. `isFresh`: never over a connection that was used before. */
  optionsFor(target: PortTarget, isFresh: boolean): RequestOptions {
    const options: PortRequestOptions = isFresh
      ? { createConnection: (_options, callback) => this.#connect(target, callback) }
      : { agent: this, target };
    return options;
  }

  override getName(options?: PortRequestOptions): string {
    const target = options?.target;
    return target === undefined ? '' : `${target.machineId}:${target.port}`;
  }

  override createConnection(options: PortRequestOptions, callback?: Callback): undefined {
    if (options.target === undefined || callback === undefined) throw new Error('A request names no port.');
    this.#connect(options.target, callback);
  }

  override keepSocketAlive(socket: Duplex): boolean {
    const keeps = super.keepSocketAlive(socket as Socket) as unknown as boolean;
    if (!keeps) return false;
    const timer = setTimeout(() => socket.destroy(), IDLE_MS).unref();
    this.#idle.set(socket, timer);
    socket.once('close', () => this.#forget(socket));
    const [oldest] = this.#idle.keys();
    if (this.#idle.size > IDLE_OF_ALL) oldest?.destroy();
    return true;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.#forget(socket);
    super.reuseSocket(socket as Socket, request);
  }

  #connect(target: PortTarget, callback: Callback): undefined {
    this.#open(target).then(
      (stream) => callback(null, asSocket(stream)),
      (error: Error) => callback(error, undefined as unknown as Duplex),
    );
  }

  #forget(socket: Duplex): void {
    clearTimeout(this.#idle.get(socket));
    this.#idle.delete(socket);
  }
}

type Callback = (error: Error | null, stream: Duplex) => void;

/** Adds the methods of a `net.Socket` that node's HTTP client calls. They mean nothing for a stream through the host. */
function asSocket(stream: Duplex): Duplex {
  const nothing = () => stream;
  const methods = { setKeepAlive: nothing, setNoDelay: nothing, setTimeout: nothing, ref: nothing, unref: nothing };
  return Object.assign(stream, methods, { timeout: 0 });
}
