// Limits the TCP connections of this replica, so that nobody can use up all of them. A connection counts as a stranger
// until a request on it has a valid credential. From then on it belongs to the account of its last credential.
//
//   limit exceeded                              what happens
//   strangers of one client address             the oldest of them is closed
//   all strangers (a quarter of the maximum)    the oldest of them is closed
//   connections of one account                  its longest idle one is closed; if none is idle, the request gets 429
//   all connections                             the oldest stranger is closed, else the longest idle connection, else
//                                               the new connection
//
// New connections are not refused, because then strangers could keep all clients out by holding connections open. A
// real client sends its credential at once, so its connection is no stranger for long. Closing an idle connection is
// harmless, because HTTP clients open another.
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { tcpSocketOf } from '../tls/tcp-sockets.ts';
import { clientOf } from './address.ts';
import { Groups } from './groups.ts';
import type { Unfinished } from './unfinished.ts';

export type ConnectionBounds = {
  /** The most connections of this replica. */
  connections: number;
  /** The most connections of one client address on which no request had a valid credential yet. */
  connectionsPerAddress: number;
  /** The most connections of one account, and the most unfinished requests of one account. */
  connectionsPerAccount: number;
};

type Connection = {
  socket: Socket;
  /** The client as `clientOf` counts it. Undefined for a trusted proxy, because its connections carry many clients. */
  client: string | undefined;
  accountId: string | undefined;
  unfinished: number;
};

const RETRY_SEC = 1;
/** Strangers may hold one in this many connections. Measured: an idle connection takes 20 to 30 KB. */
const STRANGERS_SHARE = 4;

export class Connections {
  readonly #bounds: ConnectionBounds;
  readonly #isProxy: (ip: string) => boolean;
  /** Ordered by the time at which a connection last became idle (or was opened), oldest first. */
  readonly #all = new Map<Socket, Connection>();
  readonly #strangers = new Groups<Connection>();
  readonly #accounts = new Groups<Connection>();
  readonly #unfinished = new Map<string, number>();
  readonly #requests: Unfinished;

  /** `requests` counts the requests of all connections. */
  constructor(bounds: ConnectionBounds, isProxy: (ip: string) => boolean, requests: Unfinished) {
    this.#bounds = bounds;
    this.#isProxy = isProxy;
    this.#requests = requests;
  }

  /** Bounds the connections of a server. */
  watch(server: Server): void {
    server.on('connection', (socket) => this.#open(socket));
    server.prependListener('request', (request, response) => this.#begin(tcpSocketOf(request.socket), response));
  }

  /**
   * Gives the connection of a request to the account of its credential, and counts the request until its response is
   * closed. Throws `rate_limited` when the account has too many unfinished requests.
   */
  authenticated(response: ServerResponse, accountId: string): void {
    const unfinished = this.#unfinished.get(accountId) ?? 0;
    const connection = this.#all.get(tcpSocketOf(response.req.socket));
    const hasPlace = connection === undefined || this.#own(connection, accountId);
    if (unfinished >= this.#bounds.connectionsPerAccount || !hasPlace) {
      // Close this connection if the account may not have it. Its other connections stay: they may have requests.
      if (!hasPlace) response.shouldKeepAlive = false;
      const most = this.#bounds.connectionsPerAccount;
      throw new ServiceError('rate_limited', `The account has ${most} unfinished requests, which is the most.`, {
        retryAfterSec: RETRY_SEC,
      });
    }
    // The client has disconnected already, so `close` would never be emitted. Do not count the request.
    if (response.closed) return;
    this.#unfinished.set(accountId, unfinished + 1);
    response.once('close', () => {
      const left = (this.#unfinished.get(accountId) ?? 1) - 1;
      if (left === 0) this.#unfinished.delete(accountId);
      else this.#unfinished.set(accountId, left);
    });
  }

  #open(socket: Socket): void {
    const ip = socket.remoteAddress;
    // The client has disconnected already.
    if (ip === undefined) return;
    const client = this.#isProxy(ip) ? undefined : clientOf(ip);
    const connection: Connection = { socket, client, accountId: undefined, unfinished: 0 };
    this.#all.set(socket, connection);
    this.#strangers.add(client, connection);
    socket.once('close', () => this.#remove(connection));
    if (client !== undefined && this.#strangers.size(client) > this.#bounds.connectionsPerAddress) {
      this.#end(this.#strangers.oldest(client));
    }
    if (this.#strangers.size() > this.#bounds.connections / STRANGERS_SHARE) this.#end(this.#strangers.oldest());
    if (this.#all.size > this.#bounds.connections) this.#end(this.#leastUseful(connection));
  }

  #begin(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (!connection) return;
    connection.unfinished++;
    this.#requests.begin();
    response.once('close', () => {
      this.#requests.end();
      connection.unfinished--;
      // The head of the response may have been sent before the shutdown, so that it did not tell the client.
      if (this.#requests.areLast && connection.unfinished === 0) response.req.socket.destroySoon();
      if (connection.unfinished > 0 || !this.#all.delete(socket)) return;
      this.#all.set(socket, connection);
      this.#accounts.moveToEnd(connection.accountId, connection);
    });
  }

  /** Returns false if the account has too many connections and none of them is idle. */
  #own(connection: Connection, accountId: string): boolean {
    const { accountId: before, client } = connection;
    if (before === accountId) return true;
    const isProxied = client === undefined;
    if (!isProxied && this.#accounts.size(accountId) >= this.#bounds.connectionsPerAccount) {
      const idle = this.#accounts.find(accountId, isIdle);
      if (!idle) return false;
      this.#end(idle);
    }
    if (before === undefined) this.#strangers.delete(client, connection);
    else this.#accounts.delete(before, connection);
    connection.accountId = accountId;
    if (!isProxied) this.#accounts.add(accountId, connection);
    return true;
  }

  #leastUseful(newest: Connection): Connection {
    const stranger = this.#strangers.oldest();
    if (stranger && stranger !== newest) return stranger;
    for (const connection of this.#all.values()) if (isIdle(connection) && connection !== newest) return connection;
    return newest;
  }

  #end(connection: Connection | undefined): void {
    if (!connection) return;
    this.#remove(connection);
    connection.socket.destroy();
  }

  #remove(connection: Connection): void {
    const { accountId, client, socket } = connection;
    if (!this.#all.delete(socket)) return;
    if (accountId === undefined) this.#strangers.delete(client, connection);
    else this.#accounts.delete(accountId, connection);
  }
}

const isIdle = ({ unfinished }: Connection): boolean => unfinished === 0;
