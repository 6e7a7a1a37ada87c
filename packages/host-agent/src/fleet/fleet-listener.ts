// Serves the host API to the control plane over TLS. Each connection passes three servers:
//
//   TCP (bounds on strangers) -> TLS (certificates of both sides) -> name of the peer -> HTTP (the server of the Unix socket)
//
// So no byte of HTTP is read before it is certain that the peer is the control plane, and there is one HTTP server.
import { constants } from 'node:crypto';
import { once } from 'node:events';
import type { Server as HttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { CONTROL_PLANE_NAME } from '@sandbar/contract/fleet.ts';
import { noteTransport } from '../http/transport.ts';
import { hasOnlyName } from './check-certificate.ts';
import type { Identity } from './fleet-files.ts';
import { Handshakes } from './handshakes.ts';
import { formatHostAddress, type HostAddress } from './host-address.ts';

/**
 * After how long the kernel asks whether the other end of an idle connection is still there. After ten unanswered
 * questions in as many seconds, or when the other end no longer knows the connection, it breaks.
 */
const KEEP_ALIVE_MS = 15_000;
/** How often refused peers are logged, so that strangers cannot fill the log. */
const LOG_EVERY_MS = 60_000;

type Log = { warn(details: object, message: string): void };

export class FleetListener {
  readonly #tcp: Server;
  readonly #tls: TlsServer;
  readonly #handshakes = new Handshakes();
  /** The TCP connection below each TLS connection, by the address of its other end. */
  readonly #transports = new Map<string, Socket>();
  readonly #log: Log;
  #loggedAt = Number.NEGATIVE_INFINITY;
  #unlogged = 0;

  /** Connections of the control plane are passed to `http`. */
  constructor(identity: Identity, http: HttpServer, log: Log) {
    this.#log = log;
    this.#tls = createTlsServer({
      ...contextOf(identity),
      requestCert: true,
      rejectUnauthorized: true,
      ALPNProtocols: ['http/1.1'],
      // As node's HTTP server has it for its own connections: it decides what the end of one direction means.
      allowHalfOpen: true,
    });
    this.#tls.on('secureConnection', (socket) => this.#onSecure(socket, http));
    this.#tls.on('tlsClientError', (error, socket) => {
      this.#note(error.message, socket);
      socket.destroy();
    });
    this.#tcp = createServer({
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    this.#tcp.on('connection', (socket) => this.#onConnection(socket));
  }

  /** Resolves with the address. Throws `validation_error` when the agent cannot listen there. */
  async listen(address: HostAddress): Promise<HostAddress> {
    try {
      this.#tcp.listen(address);
      await once(this.#tcp, 'listening');
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw new ServiceError(
        'validation_error',
        `cannot listen on ${formatHostAddress(address)} (${code}): name another address in SANDBAR_AGENT_LISTEN`,
        { cause },
      );
    }
    return { ...address, port: (this.#tcp.address() as AddressInfo).port };
  }

  /** Connections that open from now on use this identity. Those that are open stay. */
  use(identity: Identity): void {
    this.#tls.setSecureContext(contextOf(identity));
  }

  /** Takes no more connections, and cuts those that are open. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#tcp.close(resolve));
    for (const transport of this.#transports.values()) transport.destroy();
    await closed;
  }

  #onConnection(transport: Socket): void {
    transport.on('error', () => transport.destroy());
    const key = keyOf(transport);
    // An absent address: the other end has gone already.
    if (key === undefined) transport.destroy();
    else if (this.#handshakes.admit(transport)) {
      this.#transports.set(key, transport);
      transport.once('close', () => this.#transports.delete(key));
      this.#tls.emit('connection', transport);
    }
  }

  #onSecure(socket: TLSSocket, http: HttpServer): void {
    socket.on('error', () => socket.destroy());
    const transport = this.#transports.get(keyOf(socket) ?? '');
    const certificate = socket.getPeerX509Certificate();
    if (transport === undefined || certificate === undefined || !socket.authorized) {
      socket.destroy();
    } else if (!hasOnlyName(certificate, CONTROL_PLANE_NAME)) {
      this.#note(`the certificate is for ${certificate.subjectAltName}`, socket);
      transport.resetAndDestroy();
    } else {
      this.#handshakes.succeeded(transport);
      noteTransport(socket, transport);
      http.emit('connection', socket);
    }
  }

  #note(reason: string, { remoteAddress }: Socket): void {
    this.#unlogged += 1;
    if (performance.now() - this.#loggedAt < LOG_EVERY_MS) return;
    const details = { reason, remoteAddress, connections: this.#unlogged };
    this.#log.warn(details, 'refused connections that are not of the control plane; this is the last one');
    this.#loggedAt = performance.now();
    this.#unlogged = 0;
  }
}

function contextOf({ key, certificate, authorities }: Identity) {
  return {
    key,
    cert: certificate,
    ca: authorities,
    minVersion: 'TLSv1.3',
    // A resumed session would skip the check of the peer's certificate, also when its authority is no longer trusted.
    secureOptions: constants.SSL_OP_NO_TICKET,
  } as const;
}

const keyOf = ({ remoteAddress, remotePort }: Socket): string | undefined =>
  remoteAddress === undefined ? undefined : `${remoteAddress} ${remotePort}`;
