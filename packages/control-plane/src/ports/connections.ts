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
  readonly #idle = new Map<Socket, NodeJS.Timeout>();

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

  override keepSocketAlive(stream: Duplex): boolean {
    const socket = stream as Socket;
    const keeps = super.keepSocketAlive(socket) as unknown as boolean;
    if (!keeps) return false;
    const timer = setTimeout(() => socket.destroy(), IDLE_MS).unref();
    this.#idle.set(socket, timer);
    socket.once('close', () => this.#forget(socket));
    const [oldest] = this.#idle.keys();
    if (this.#idle.size > IDLE_OF_ALL) oldest?.destroy();
    return true;
  }

  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    this.#forget(stream as Socket);
    super.reuseSocket(stream as Socket, request);
  }

  #connect(target: PortTarget, callback: Callback): undefined {
    this.#open(target).then(
      (socket) => callback(null, socket),
      (error: Error) => callback(error, undefined as unknown as Socket),
    );
  }

  #forget(socket: Socket): void {
    clearTimeout(this.#idle.get(socket));
    this.#idle.delete(socket);
  }
}

type Callback = (error: Error | null, stream: Duplex) => void;
