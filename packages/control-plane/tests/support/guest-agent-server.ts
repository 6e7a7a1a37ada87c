// The host agent's own HTTP server, on a Unix socket, with machines whose guests the test plays. Run as a program (with
// the socket's path), it is an agent that can be killed; its streams stay open until then.
import { promisify } from 'node:util';
import { createLog } from '@sandbar/logging/log.ts';
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
import type { GuestMachines } from '../../../host-agent/src/http/guest-routes.ts';
import { buildServer, type HostServices } from '../../../host-agent/src/http/server.ts';
import { playStream } from './guest-stream.ts';

/** Starts the server. `connections` counts the open connections. */
export async function serveGuests(
  socketPath: string,
  guest: ReturnType<GuestMachines['get']>,
): Promise<{ close(): void; connections(): Promise<number> }> {
  // Nothing but the machines is asked for.
  const services = { machines: { get: () => guest }, tracing: NO_TRACING } as unknown as HostServices;
  const server = buildServer(services, createLog({ process: 'host-agent', level: 'silent' }));
  await server.listen({ path: socketPath });
  const close = () => {
    void server.close();
  };
  const connections = promisify(server.server.getConnections.bind(server.server));
  return { close, connections };
}

if (import.meta.main) {
  const [, , socketPath = ''] = process.argv;
  const openStream = async () => {
    const { duplex, guest, result } = playStream();
    guest.pipe(guest);
    return { head: '{}', duplex, result: result.then(String) };
  };
  await serveGuests(socketPath, { callGuest: async () => '{}', openStream });
  console.log('listening');
}
