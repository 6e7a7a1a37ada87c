// A balancer for TCP connections, as it stands before the replicas of a service. It asks each replica twice a second
// whether it is ready. A new connection goes to the next ready replica that accepts it, and to another one only when none
// is ready.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** `readyUrl` answers 200 while the target may get new connections. */
export type Target = { host: string; port: number; readyUrl: string };

const CHECK_MS = 500;

export class Balancer {
  readonly url: string;
  readonly #server: Server;
  readonly #open: ReadonlySet<Socket>;
  readonly #checks: NodeJS.Timeout;

  static async start(targets: readonly Target[]): Promise<Balancer> {
    let next = 0;
    const open = new Set<Socket>();
    const ready = new Set(targets);
    const checks = setInterval(() => {
      for (const target of targets) void check(target, ready);
    }, CHECK_MS);
    const server = createServer({ allowHalfOpen: true }, async (client) => {
      open.add(client);
      client.once('close', () => open.delete(client));
      client.on('error', () => {});
      next = (next + 1) % targets.length;
      const turns = [...targets.slice(next), ...targets.slice(0, next)];
      const upstream = await connectToFirst([
        ...turns.filter((one) => ready.has(one)),
        ...turns.filter((one) => !ready.has(one)),
      ]);
      if (!upstream) return client.destroy();
      upstream.on('error', () => client.destroy());
      client.once('close', () => upstream.destroy());
      upstream.once('close', () => client.destroy());
      client.pipe(upstream).pipe(client);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Balancer(server, open, checks);
  }

  private constructor(server: Server, open: ReadonlySet<Socket>, checks: NodeJS.Timeout) {
    this.#server = server;
    this.#open = open;
    this.#checks = checks;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  close(): void {
    clearInterval(this.#checks);
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }
}

async function check(target: Target, ready: Set<Target>): Promise<void> {
  const isReady = await isTargetReady(target.readyUrl);
  if (isReady) ready.add(target);
  else ready.delete(target);
}

export async function isTargetReady(readyUrl: string): Promise<boolean> {
  try {
    const answer = await fetch(readyUrl, { signal: AbortSignal.timeout(5_000) });
    await answer.arrayBuffer();
    return answer.status === 200;
  } catch {
    return false;
  }
}

/** Connects to the first target that accepts a connection. */
async function connectToFirst(targets: readonly Target[]): Promise<Socket | undefined> {
  for (const { host, port } of targets) {
    const socket = connect({ host, port, allowHalfOpen: true });
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    if (isOpen) return socket;
    socket.destroy();
  }
  return undefined;
}
