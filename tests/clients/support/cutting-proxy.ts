// A TCP proxy in front of the service. It breaks connections while an answer is on its way.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export type CuttingProxy = {
  baseUrl: string;
  /** How many connections were cut so far. */
  cuts: () => number;
  close: () => void;
};

/** Cuts each connection after `bytes` bytes of answers. After `times` cuts it leaves further connections alone. */
export async function startCuttingProxy(target: string, { bytes, times }: { bytes: number; times: number }) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let cuts = 0;
  const server = createServer((client) => {
    const service = connect(Number(port), hostname);
    let passed = 0;
    const end = () => {
      client.destroy();
      service.destroy();
    };
    for (const socket of [client, service]) sockets.add(socket.on('error', end).on('close', end));
    client.pipe(service);
    service.on('data', (chunk: Buffer) => {
      passed += chunk.length;
      if (passed > bytes && cuts < times) {
        cuts++;
        end();
      } else if (!client.write(chunk)) {
        service.pause();
        client.once('drain', () => service.resume());
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy: CuttingProxy = {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cuts: () => cuts,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
  return proxy;
}
