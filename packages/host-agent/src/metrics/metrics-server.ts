// Serves the metrics of the agent on an address of their own, for a Prometheus that cannot open the agent's socket.
// They need no credential, so the address must be private.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';

export type MetricsAddress = { host: string; port: number };
export type MetricsServer = { address: MetricsAddress; close(): Promise<void> };

/** Serves `GET /metrics`. Rejects when the address cannot be opened. */
export async function serveMetrics({ host, port }: MetricsAddress, registry: Registry): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    if (request.url?.split('?')[0] !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    registry.metrics().then(
      (text) => response.writeHead(200, { 'content-type': registry.contentType }).end(text),
      () => response.writeHead(503).end(),
    );
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen(port, host, resolve);
  await promise;
  const close = async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  return { address: { host, port: (server.address() as AddressInfo).port }, close };
}
