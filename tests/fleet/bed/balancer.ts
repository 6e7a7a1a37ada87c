// A balancer for TCP connections, as it stands before the replicas of a service: each new connection goes to the next
// replica that accepts one.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export type Target = { host: string; port: number };

export class Balancer {
  readonly url: string;
  readonly #server: Server;

  static async start(targets: readonly Target[]): Promise<Balancer> {
    let next = 0;
    const open = new Set<Socket>();
    const server = createServer({ allowHalfOpen: true }, async (client) => {
      open.add(client);
      client.once('close', () => open.delete(client));
      client.on('error', () => {});
      next = (next + 1) % targets.length;
      const upstream = await connectToFirst([...targets.slice(next), ...targets.slice(0, next)]);
      if (!upstream) return client.destroy();
      upstream.on('error', () => client.destroy());
      client.once('close', () => upstream.destroy());
      upstream.once('close', () => client.destroy());
      client.pipe(upstream).pipe(client);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Balancer(server, open);
  }

  readonly #open: ReadonlySet<Socket>;

  private constructor(server: Server, open: ReadonlySet<Socket>) {
    this.#server = server;
    this.#open = open;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }
}

/** Connects to the first target that accepts a connection. */
async function connectToFirst(targets: readonly Target[]): Promise<Socket | undefined> {
  for (const target of targets) {
    const socket = connect({ ...target, allowHalfOpen: true });
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    if (isOpen) return socket;
    socket.destroy();
  }
  return undefined;
}
