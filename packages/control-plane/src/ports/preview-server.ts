// Serves the host names of ports: finds the machine, checks who asks, and relays. The API's routes never see these
// requests, and machines never see the API's credentials.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { sessionSecret } from '../auth/cookie.ts';
import { clientAddress, proxyMatcher } from '../http/address.ts';
import type { Connections } from '../http/connections.ts';
import { firstOf } from '../http/ending.ts';
import { forwardedHost, isOverTls } from '../http/forwarded.ts';
import { Places } from '../http/places.ts';
import { upgradeOf } from '../http/websocket.ts';
import { isShuttingDown } from '../operations/refusals.ts';
import { authorise, type Permission } from './authorise.ts';
import { PortConnections } from './connections.ts';
import { writePortCookie } from './cookies.ts';
import { openPort } from './open-port.ts';
import { type Destination, destinationOf } from './preview-host.ts';
import { locationOf, takeToken } from './query-token.ts';
import { refuse } from './refusal.ts';
import { bodyOf, type Relayed, relayRequest } from './relay.ts';
import { portTokenSecret } from './token.ts';
import { relayUpgrade } from './upgrade.ts';

export class PreviewServer {
  readonly #app: App;
  readonly #places: Places;
  readonly #ports: PortConnections;
  readonly #isProxy: (ip: string) => boolean;
  readonly #secrets: { session: string; token: Buffer };
  /** Connections on which an invalid request arrived. Later requests on them get no answer. */
  readonly #distrusted = new WeakSet<Socket>();
  readonly #relaying = new WeakSet<Socket>();
  /** Set once the API's server exists. */
  connections: Connections | undefined;

  constructor(app: App) {
    this.#app = app;
    this.#places = new Places(
      app.config.bounds.portConnectionsPerAccount,
      'requests and connections to ports',
      app.metrics.streams.labels('port'),
    );
    this.#ports = new PortConnections((target) => openPort(app, target));
    this.#isProxy = proxyMatcher(app.config.trustProxy);
    this.#secrets = { session: sessionSecret(app.config.secret), token: portTokenSecret(app.config.secret) };
  }

  /** Whether the host name of a request is that of a port. */
  isFor(request: IncomingMessage): boolean {
    return this.#addressOf(request).destination.kind !== 'api';
  }

  /**
   * True while a request on this connection is relayed. Then the general time limit on receiving a request does not
   * apply.
   */
  isRelaying(socket: Socket): boolean {
    return this.#relaying.has(socket);
  }

  /** Handles a request whose host name is that of a port. Returns false, and does nothing, for all others. */
  handle(request: IncomingMessage, response: ServerResponse): boolean {
    const { destination, host } = this.#addressOf(request);
    if (destination.kind === 'api') return false;
    request.on('error', () => undefined);
    if (this.#distrusted.has(request.socket)) {
      response.destroy();
      return true;
    }
    this.#serve(destination, host, request, response).catch((error: unknown) => {
      refuse(error, request, response, this.#app.log);
    });
    return true;
  }

  /**
   * Returns where a request goes, and the host name by which its client addressed it. A trusted proxy that changes
   * `Host` names the original one. It cannot lead a request from the host name of a port to the API, because a page of
   * a machine may set any header.
   */
  #addressOf(request: IncomingMessage): { destination: Destination; host: string } {
    const { previewDomain } = this.#app.config;
    const { host = '' } = request.headers;
    const destination = destinationOf(host, previewDomain);
    const told = destination.kind === 'api' ? forwardedHost(request, this.#isProxy) : undefined;
    return told === undefined ? { destination, host } : { destination: destinationOf(told, previewDomain), host: told };
  }

  async #serve(
    destination: Destination,
    host: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    this.#checkMessage(request);
    if (destination.kind !== 'port') throw new ServiceError('not_found', 'There is nothing at this address.');
    const { machineId, port } = destination;
    const { token, cleanPath } = takeToken(request.url ?? '/');
    const asked = { request, machineId, port, queryToken: token };
    const permission = await authorise(this.#app, this.#secrets, asked);
    const { target, state, isPublic } = permission.found;
    // Everybody may send requests to a public port, so they do not count toward the account's limit on connections.
    if (!isPublic) this.#connections.authenticated(response, target.accountId);
    if (token !== undefined && permission.expiresAt !== undefined && isPageLoad(request)) {
      this.#exchange(token, permission.expiresAt, cleanPath, request, response);
      return;
    }
    if (state !== 'running') throw new ServiceError('conflict', `The machine is ${state}; it must run for this.`);
    const leave = this.#places.take(target.accountId);
    const watch = watchPermission(this.#app, permission);
    this.#relaying.add(request.socket);
    const relayed: Relayed = {
      target,
      path: cleanPath,
      forwarded: this.#forwardedOf(host, request, permission.dropsAuthorization),
      frameOrigins: this.#app.config.previewFrameOrigins,
    };
    try {
      await this.#relay(relayed, request, response, watch.signal);
    } finally {
      watch.stop();
      leave();
      this.#relaying.delete(request.socket);
    }
  }

  #relay(relayed: Relayed, request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    if (response.destroyed) return Promise.resolve();
    if (signal.aborted) return Promise.reject(isShuttingDown());
    const upgrade = upgradeOf(request);
    if (upgrade) return relayUpgrade(this.#ports, relayed, { request, response, head: upgrade.head, signal });
    return relayRequest(this.#ports, relayed, { request, response, signal });
  }

  /** Sets the token as a cookie, and redirects the browser to the same address without the token. */
  #exchange(token: string, expiresAt: number, path: string, request: IncomingMessage, response: ServerResponse): void {
    const isSecure = this.#app.config.auth.publicUrl.startsWith('https:') || isOverTls(request, this.#isProxy);
    response.writeHead(302, {
      location: locationOf(path),
      'set-cookie': writePortCookie(token, expiresAt, Date.now(), isSecure),
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'content-length': '0',
    });
    response.end();
  }

  #checkMessage(request: IncomingMessage): void {
    try {
      checkMessage(request);
    } catch (error) {
      this.#distrusted.add(request.socket);
      throw error;
    }
  }

  #forwardedOf(host: string, request: IncomingMessage, dropsAuthorization: boolean): Relayed['forwarded'] {
    const { headers, socket } = request;
    return {
      host,
      clientIp: clientAddress(socket.remoteAddress ?? '', headers['x-forwarded-for'], this.#isProxy),
      protocol: isOverTls(request, this.#isProxy) ? 'https' : 'http',
      dropsAuthorization,
    };
  }

  get #connections(): Connections {
    if (!this.connections) throw new Error('The server is not complete.');
    return this.connections;
  }
}

/** Whether a browser can follow a redirect of the request and show its page. */
const isPageLoad = ({ method, headers }: IncomingMessage): boolean =>
  (method === 'GET' || method === 'HEAD') && headers.upgrade === undefined;

/**
 * Throws `validation_error` for a request that two readers could understand differently: with two host names, with an
 * address in place of a path, or with a body whose end is unclear.
 */
function checkMessage(request: IncomingMessage): void {
  const names = request.rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === 'host');
  if (names.length !== 1) throw new ServiceError('validation_error', 'The request must have one Host header.');
  const isPath = request.url?.startsWith('/') || (request.method === 'OPTIONS' && request.url === '*');
  if (!isPath) throw new ServiceError('validation_error', 'The request must name a path.');
  bodyOf(request);
}

/**
 * Returns a signal that is aborted when the relay has to end: a shutdown, the end of the credential, or the suspension
 * of the account.
 */
function watchPermission(app: App, permission: Permission): { signal: AbortSignal; stop(): void } {
  const { credential, expiresAt, isRead } = permission;
  const watched = app.credentials.watch(credential, isRead ? 'read' : 'change');
  const expiry = new AbortController();
  const timer = expiresAt === undefined ? undefined : setTimeout(() => expiry.abort(), expiresAt - Date.now()).unref();
  const signals = [app.cutoff, expiry.signal, watched.signal];
  const ending = firstOf(signals.map((signal) => [signal, () => undefined]));
  const stop = () => {
    clearTimeout(timer);
    watched.stop();
    ending.stop();
  };
  return { signal: ending.signal, stop };
}
