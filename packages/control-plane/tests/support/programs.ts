// Programs that listen on ports of fake machines: servers in this process, which the fake host connects to.
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Socket,
  type Server as TcpServer,
} from 'node:net';
import { after } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { ControlPlane } from '../../src/control-plane.ts';
import type { FakeHost } from './fake-host.ts';

export class Programs {
  /** The local port of each program, by machine and port. */
  readonly #locals = new Map<string, number>();
  /** The connections to programs that are open now, by the machine. */
  readonly sockets = new Set<Socket>();
  /** How many connections were opened so far. */
  opened = 0;

  readonly #servers: (Server | TcpServer)[] = [];

  constructor(host: FakeHost) {
    after(() => {
      for (const socket of this.sockets) socket.destroy();
      for (const server of this.#servers) server.close();
    });
    host.guestStreams['ports.connect'] = async (machineId, { port }: { port: number }) => {
      const local = this.#locals.get(`${machineId}:${port}`);
      if (local === undefined) {
        throw new ServiceError('port_not_open', `Nothing in the machine listens on port ${port}. No port is open.`);
      }
      const socket = connect(local, '127.0.0.1').on('error', () => undefined);
      await once(socket, 'connect');
      this.opened++;
      this.sockets.add(socket);
      socket.once('close', () => this.sockets.delete(socket));
      const { promise: result, resolve, reject } = Promise.withResolvers<object>();
      socket.once('end', () => resolve({}));
      socket.once('close', () => reject(new Error('the connection broke')));
      result.catch(() => undefined);
      return { head: {}, duplex: socket, result };
    };
    host.guestCalls['ports.list'] = (machineId) => ({
      ports: [...this.#locals.keys()]
        .filter((name) => name.startsWith(machineId))
        .map((name) => ({ port: Number(name.split(':')[1]), protocol: 'tcp', process: 'node' })),
    });
  }

  /** Starts an HTTP program. */
  async serve(machineId: string, port: number, handler: RequestListener): Promise<Server> {
    const server = createServer(handler);
    await this.#listen(server, machineId, port);
    return server;
  }

  /** Starts a program that gets each connection as it is. */
  async serveRaw(machineId: string, port: number, onConnection: (socket: Socket) => void): Promise<TcpServer> {
    const server = createTcpServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined);
      onConnection(socket);
    });
    await this.#listen(server, machineId, port);
    return server;
  }

  async #listen(server: Server | TcpServer, machineId: string, port: number): Promise<void> {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#locals.set(`${machineId}:${port}`, (server.address() as AddressInfo).port);
    this.#servers.push(server);
  }
}

/** A connection to the service on which a test writes bytes of its own. */
export class RawClient {
  readonly socket: Socket;
  #received = '';

  constructor({ address }: ControlPlane) {
    this.socket = connect(address.port, address.host).on('error', () => undefined);
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text: string) => {
      this.#received += text;
    });
    after(() => this.socket.destroy());
  }

  get received(): string {
    return this.#received;
  }

  write(text: string): void {
    this.socket.write(text, 'latin1');
  }

  /** Waits until what was received matches. Throws when the connection ends before. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.#received);
      if (match) return match;
      if (this.socket.destroyed || this.socket.readableEnded) {
        throw new Error(`${pattern} is not in ${JSON.stringify(this.#received)}`);
      }
      await Promise.race([once(this.socket, 'data'), this.#over()]);
    }
  }

  /** Waits until the service has ended the connection. */
  async ended(): Promise<string> {
    await this.#over();
    return this.#received;
  }

  async #over(): Promise<void> {
    const { socket } = this;
    if (socket.destroyed || socket.readableEnded) return;
    // The service may reset a connection whose bytes it has not read.
    await Promise.race([once(socket, 'end'), once(socket, 'close')]).catch(() => undefined);
  }
}
