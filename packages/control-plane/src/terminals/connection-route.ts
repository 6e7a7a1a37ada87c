// The HTTP endpoint that connects a WebSocket to a terminal. Everything is checked before the upgrade, so every refusal
// is an ordinary HTTP answer: first the ticket (401), then the page's origin and the account's suspension (403), then
// the machine (409).
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import { TERMINAL_BOUNDS, TERMINAL_PROTOCOL, TerminalQuery } from '@sandbar/contract/terminal.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { accountIsSuspended } from '../accounts/suspended.ts';
import type { App } from '../app.ts';
import { refuseForeignOrigin } from '../auth/origin.ts';
import type { Connections } from '../http/connections.ts';
import { Places } from '../http/places.ts';
import { abortOnClose, requireUpgrade, WebSocketRoute } from '../http/websocket.ts';
import { connectTerminal, requireRunning, resizeTerminal } from './open.ts';
import { relayTerminal } from './relay.ts';
import { type SpentTicket, spendTicket } from './store.ts';

export function addConnectionRoute(untyped: FastifyInstance, app: App, connections: Connections): void {
  const places = new Places(
    app.config.bounds.terminalsPerAccount,
    'connections to terminals',
    app.metrics.streams.labels('terminal'),
  );
  const webSockets = new WebSocketRoute({ protocol: TERMINAL_PROTOCOL, messageBytes: TERMINAL_BOUNDS.messageBytes });
  const tickets = new WeakMap<FastifyRequest, SpentTicket>();

  untyped.withTypeProvider<TypeBoxTypeProvider>().route({
    method: 'GET',
    url: '/v1/machines/:id/terminal',
    // A HEAD would spend the ticket.
    exposeHeadRoute: false,
    schema: {
      operationId: 'connectTerminal',
      summary: 'Connect to a terminal',
      description:
        'A WebSocket to a terminal. The ticket is the credential; it is spent before the state of the machine is checked. ' +
        'Without a subprotocol every frame is raw terminal data. With Sec-WebSocket-Protocol: sandbar.terminal.v1 ' +
        'binary frames are data and text frames JSON messages: {"type":"resize","cols","rows"} up, ' +
        '{"type":"start","terminal_id","offset"} down before the first data, where offset is the number of the byte ' +
        'that follows in the whole output, and {"type":"exit","code","signal"} down before the close. A terminal that ' +
        'is joined first sends up to 256 KiB of its last output. The close code is 1000 when the program ended, 1012 ' +
        'when the service shuts down, 1013 when the host does not answer, 4408 when the client was too slow, and ' +
        'otherwise 4000 and the HTTP status of the error; the reason says more. A page of another origin is refused.',
      tags: ['Terminal'],
      params: MachineParams,
      querystring: TerminalQuery,
      response: { 101: { type: 'null', description: 'The WebSocket is open.' } },
    },
    config: {
      access: 'public',
      errors: ['unauthenticated', 'forbidden', 'conflict', 'rate_limited', 'host_unavailable'],
    },
    // Spends the ticket where other routes check their credential, so it is checked before anything else.
    onRequest: async (request, reply) => {
      const { ticket } = request.query;
      const { id } = request.params;
      const spent = typeof ticket === 'string' ? await spendTicket(app.db, ticket, id) : undefined;
      if (!spent) {
        throw new ServiceError('unauthenticated', 'The ticket is missing, unknown, expired or spent. Get another one.');
      }
      refuseForeignOrigin(request, app.config.auth.publicUrl);
      if (spent.is_suspended) throw accountIsSuspended();
      tickets.set(request, spent);
      connections.authenticated(reply.raw, spent.account_id);
    },
    handler: async (request, reply) => {
      const ticket = tickets.get(request);
      if (!ticket) throw new Error('A terminal was asked for without a ticket.');
      await requireRunning(app, ticket);
      requireUpgrade(request);
      const stream = await connectTerminal(app, ticket, places, abortOnClose(request));
      const socket = await webSockets.open(request, reply).catch((error: unknown) => {
        stream.duplex.destroy();
        throw error;
      });
      const relaying = relayTerminal(socket, stream, {
        terminalId: ticket.terminal_id,
        isFramed: socket.protocol === TERMINAL_PROTOCOL,
        heartbeatMs: app.config.timing.streamHeartbeatMs,
        resize: (size) => resizeTerminal(app, ticket, size),
      });
      logEnd(request, ticket, relaying);
      return reply;
    },
  });
}

/** A WebSocket has no response in the log of requests, so it gets a line of its own when it ends. */
function logEnd(
  { log, routeOptions: { url: route } }: FastifyRequest,
  { account_id }: SpentTicket,
  relaying: ReturnType<typeof relayTerminal>,
): void {
  const openedAt = performance.now();
  // Hold on to the log only, not to the request, which would stay in memory for as long as the terminal is connected.
  void relaying.then(({ code }) => {
    const ms = Math.round(performance.now() - openedAt);
    log.info({ route, ms, account_id, close_code: code }, 'terminal connection ended');
  });
}
