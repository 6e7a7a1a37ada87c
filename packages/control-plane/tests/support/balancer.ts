// A small TCP load balancer, as one stands before several replicas: round robin over those whose `/readyz` says yes.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export type Backend = { port: number; metricsPort: number };

const CHECK_MS = 50;

export class Balancer {
  /** Connections that found no backend. */
  unserved = 0;
  readonly #backends: readonly Backend[];
  #ready: readonly Backend[] = [];
  #turn = 0;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((client) => this.#pass(client));
  readonly #checks: NodeJS.Timeout;

  constructor(backends: readonly Backend[]) {
    this.#backends = backends;
    this.#checks = setInterval(() => void this.check(), CHECK_MS);
  }

  async listen(): Promise<number> {
    await this.check();
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  /** Looks which backends are ready now, and returns them. */
  async check(): Promise<readonly Backend[]> {
    const states = await Promise.all(
      this.#backends.map(({ metricsPort }) =>
        fetch(`http://127.0.0.1:${metricsPort}/readyz`).then(
          ({ ok }) => ok,
          () => false,
        ),
      ),
    );
    this.#ready = this.#backends.filter((_backend, index) => states[index]);
    return this.#ready;
  }

  close(): void {
    clearInterval(this.#checks);
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(client: Socket): void {
    this.#sockets.add(client);
    client.on('error', () => undefined);
    client.once('close', () => this.#sockets.delete(client));
    this.#tryNext(client, [...this.#ready]);
  }

  /** Connects to the next backend. When it refuses the connection, tries another one. */
  #tryNext(client: Socket, left: Backend[]): void {
    const [backend] = left.splice(this.#turn++ % left.length, 1);
    if (!backend) {
      this.unserved++;
      client.destroy();
      return;
    }
    const upstream = connect(backend.port, '127.0.0.1');
    const onRefused = () => this.#tryNext(client, left);
    upstream.once('error', onRefused);
    upstream.once('connect', () => {
      upstream.off('error', onRefused);
      upstream.on('error', () => client.destroy());
      client.once('close', () => upstream.destroy());
      upstream.once('close', () => client.destroySoon());
      client.pipe(upstream).pipe(client);
    });
  }
}
