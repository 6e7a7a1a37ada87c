// The HTTP endpoint that connects a WebSocket to a port, for any protocol over TCP. Everything is checked before the
// upgrade, so every refusal is an ordinary HTTP answer.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { PORT_BOUNDS, PORT_PROTOCOL, PortParams } from '@sandbar/contract/port.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { refuseForeignOrigin, requireOwnOrigin } from '../auth/origin.ts';
import { openGuestStream } from '../guest/stream.ts';
import { callerOf } from '../http/auth.ts';
import { Places } from '../http/places.ts';
import { abortOnClose, requireUpgrade, WebSocketRoute } from '../http/websocket.ts';
import { findRunningMachine } from '../machines/running.ts';
import { relayBytes } from './relay-bytes.ts';

export function addConnectRoute(untyped: FastifyInstance, app: App): void {
  const places = new Places(
    app.config.bounds.portConnectionsPerAccount,
    'connections to ports',
    app.metrics.streams.labels('port'),
  );
  const webSockets = new WebSocketRoute({ protocol: PORT_PROTOCOL, messageBytes: PORT_BOUNDS.messageBytes });

  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/ports/:port/connect',
    exposeHeadRoute: false,
    schema: {
      operationId: 'connectPort',
      summary: 'Connect to a port',
      description:
        'A WebSocket whose binary messages are the bytes of a TCP connection to the port, for any protocol. The text ' +
        'message {"type":"end"} ends the direction of the client, which still gets the rest of the answer. The close ' +
        'code is 1000 when the program ended the connection, 1012 when the service shuts down, 1013 when the host does ' +
        'not answer, and otherwise 4000 and the HTTP status of the error; the reason says more.',
      tags: ['Ports'],
      params: PortParams,
      response: { 101: { type: 'null', description: 'The connection is open.' } },
    },
    config: { access: 'full', errors: ['conflict', 'port_not_open', 'rate_limited', 'host_unavailable'] },
    handler: async (request, reply) => {
      const caller = callerOf(request);
      // A page of another site could open a WebSocket with the session cookie.
      if (caller.via === 'session') requireOwnOrigin(request, app.config.auth.publicUrl);
      else refuseForeignOrigin(request, app.config.auth.publicUrl);
      const { id, port } = request.params;
      await findRunningMachine(app, caller.accountId, id, false);
      requireUpgrade(request);
      const options = { waits: false, places, signal: abortOnClose(request) };
      const stream = await openGuestStream(app, caller, id, 'ports.connect', { port: Number(port) }, options);
      const socket = await webSockets.open(request, reply).catch((error: unknown) => {
        stream.duplex.destroy();
        throw error;
      });
      relayBytes(socket, stream, app.config.timing.streamHeartbeatMs);
      return reply;
    },
  });
}
