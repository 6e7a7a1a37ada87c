// Bounds the TCP connections of this replica, so that nobody can take all of them. A connection is a stranger's until a
// request on it had a valid credential; from then on it belongs to the account of its last credential.
//
//   strangers of one address over their bound   the oldest of them is closed
//   all strangers over a quarter of all places   the oldest of them is closed
//   connections of one account over the bound   its longest idle one is closed; without an idle one the request is 429
//   all connections over the bound              the oldest stranger is closed, else the longest idle connection, else
//                                               the new one
//
// Closing the oldest stranger instead of refusing the new connection lets clients in while strangers hold all places:
// a client sends its credential at once. An idle connection may be closed at any time, and HTTP clients open another.
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { clientOf } from './address.ts';
import { Groups } from './groups.ts';

export type ConnectionBounds = {
  /** All connections of this replica. */
  connections: number;
  /** Connections of one client address on which no request had a valid credential yet. */
  connectionsPerAddress: number;
  /** Connections of one account, and its unfinished requests. */
  connectionsPerAccount: number;
};

type Connection = {
  socket: Socket;
  /** The client, as `clientOf` counts it. Undefined for a trusted proxy, whose connections are those of many clients. */
  client: string | undefined;
  accountId: string | undefined;
  unfinished: number;
};

const RETRY_SEC = 1;
/** Strangers have at most one place in so many. Measured: an idle connection takes 20 to 30 KB. */
const STRANGERS_SHARE = 4;

export class Connections {
  readonly #bounds: ConnectionBounds;
  readonly #isProxy: (ip: string) => boolean;
  /** In the order in which the connections last became idle (at first: were opened), the longest ago first. */
  readonly #all = new Map<Socket, Connection>();
  readonly #strangers = new Groups<Connection>();
  readonly #accounts = new Groups<Connection>();
  readonly #unfinished = new Map<string, number>();

  constructor(bounds: ConnectionBounds, isProxy: (ip: string) => boolean) {
    this.#bounds = bounds;
    this.#isProxy = isProxy;
  }

  /** Bounds the connections of a server. */
  watch(server: Server): void {
    server.on('connection', (socket) => this.#open(socket));
    server.prependListener('request', (request, response) => this.#begin(request.socket, response));
  }

  /**
   * Gives the connection of a request to the account of its credential, and counts the request until its response is
   * closed. Throws `rate_limited` when the account has too many unfinished requests.
   */
  authenticated(response: ServerResponse, accountId: string): void {
    const unfinished = this.#unfinished.get(accountId) ?? 0;
    const connection = this.#all.get(response.req.socket);
    const hasPlace = connection === undefined || this.#own(connection, accountId);
    if (unfinished >= this.#bounds.connectionsPerAccount || !hasPlace) {
      // A connection without a place is closed. Others may have answers under way.
      if (!hasPlace) response.shouldKeepAlive = false;
      const most = this.#bounds.connectionsPerAccount;
      throw new ServiceError('rate_limited', `The account has ${most} unfinished requests, which is the most.`, {
        retryAfterSec: RETRY_SEC,
      });
    }
    // The client has disconnected already, so no `close` would come.
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
    response.once('close', () => {
      connection.unfinished--;
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
