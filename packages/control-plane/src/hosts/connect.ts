// Opens connections to host agents: to the Unix socket of this computer, or over TLS with certificates on both sides.
// All requests to a host use this, so one place knows whether a connection was open before something went wrong.
import { once } from 'node:events';
import { Agent, type ClientRequestArgs } from 'node:http';
import { connect as connectSocket, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import { hostNameOf } from '@sandbar/contract/fleet.ts';
import type { HostTarget, JoinedTarget, LocalTarget } from './target.ts';

/** How long a connection may take until its TLS handshake is complete, in milliseconds. */
const CONNECT_MS = 5_000;
/**
 * The pause after which an idle connection is probed, in milliseconds. Node then probes every second, ten times.
 * Without probes a stream would never learn that its host has lost power.
 */
const PROBE_IDLE_MS = 10_000;

/** No connection to the host could be opened, so nothing was sent. The cause says why, with the private address. */
export class NotConnected extends Error {
  constructor(cause: unknown) {
    super('No connection to the host could be opened.', { cause });
    this.name = 'NotConnected';
  }
}

/** Opens a connection. Rejects with `NotConnected`. */
export async function connectHost(target: HostTarget, timeoutMs = CONNECT_MS): Promise<Socket> {
  try {
    const socket = await ('socketPath' in target ? openLocal(target) : openTls(target, timeoutMs));
    // The connection may break before its user listens to it. The user then finds a destroyed socket.
    return socket.on('error', () => undefined);
  } catch (error) {
    throw new NotConnected(error);
  }
}

async function openLocal({ socketPath }: LocalTarget): Promise<Socket> {
  const socket = connectSocket(socketPath);
  await once(socket, 'connect');
  return socket;
}

async function openTls({ host, port, hostId, tls }: JoinedTarget, timeoutMs: number): Promise<TLSSocket> {
  const secureContext = await tls();
  const checkServerIdentity = (_name: string, certificate: PeerCertificate) => refuseOther(hostId, certificate);
  const transport = connectSocket({ host, port });
  // Its errors are also those of the TLS connection.
  transport.on('error', () => undefined);
  const socket = connectTls({ socket: transport, secureContext, checkServerIdentity, ALPNProtocols: ['http/1.1'] });
  // Before the handshake: otherwise its last small packet waits 40 ms for an acknowledgement.
  transport.setNoDelay(true).setKeepAlive(true, PROBE_IDLE_MS);
  transports.set(socket, transport);
  const onTimeout = () => socket.destroy(new Error(`${host}:${port} did not answer in ${timeoutMs} ms.`));
  const timer = setTimeout(onTimeout, timeoutMs);
  try {
    await once(socket, 'secureConnect');
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  return socket;
}

/** The TCP connection below each TLS connection. */
const transports = new WeakMap<Duplex, Socket>();

/**
 * Breaks a connection so that the agent notices it, also while it reads nothing from it: the end of a TCP connection
 * arrives only after all bytes that were sent before.
 */
export function breakConnection(socket: Socket): void {
  transports.get(socket)?.resetAndDestroy();
  socket.destroy();
}

/** Accepts the certificate of this host only, wherever the address leads. */
function refuseOther(hostId: string, { subjectaltname }: PeerCertificate): Error | undefined {
  if (subjectaltname === `URI:${hostNameOf(hostId)}`) return undefined;
  return new Error(`The certificate is not of host ${hostId}, but of: ${subjectaltname ?? 'no one'}.`);
}

/** Opens connections for Node's HTTP client, one for each request. `destroy` ends all of them. */
export class HostConnections extends Agent {
  readonly #target: HostTarget;
  #isDestroyed = false;

  constructor(target: HostTarget) {
    super({ keepAlive: false });
    this.#target = target;
  }

  override createConnection(_options: ClientRequestArgs, callback?: Callback): undefined {
    connectHost(this.#target).then(
      (socket) => {
        if (!this.#isDestroyed) {
          callback?.(null, socket);
          return;
        }
        socket.destroy();
        callback?.(new NotConnected(new Error('The client of the host is closed.')), socket);
      },
      (error: Error) => callback?.(error, undefined as unknown as Duplex),
    );
  }

  override destroy(): void {
    this.#isDestroyed = true;
    super.destroy();
  }
}

type Callback = (error: Error | null, stream: Duplex) => void;
