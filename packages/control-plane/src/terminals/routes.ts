// The HTTP endpoints of terminals.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { NoContent } from '@sandbar/contract/fields.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import { TerminalList, TerminalParams, TerminalSession, TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import type { Connections } from '../http/connections.ts';
import { addConnectionRoute } from './connection-route.ts';
import { exampleSession, exampleTerminal } from './examples.ts';
import { deleteTerminal, listTerminals } from './list.ts';
import { createTerminalSession } from './session.ts';

const tags = ['Terminal'];

export function addTerminalRoutes(untyped: FastifyInstance, app: App, connections: Connections): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/terminal-session',
    schema: {
      operationId: 'createTerminalSession',
      summary: 'Get a ticket for a terminal',
      description:
        'A ticket opens one connection to a terminal within 30 seconds. Without terminal_id the connection opens a new ' +
        'terminal: a login shell of its own, or command. With terminal_id it joins a terminal that runs.',
      tags,
      params: MachineParams,
      body: TerminalSessionCreate,
      response: { 201: TerminalSession },
    },
    config: {
      access: 'full',
      bodyIsOptional: true,
      examples: { request: { cols: 120, rows: 40 }, response: exampleSession },
    },
    handler: async (request, reply) => {
      const session = await createTerminalSession(app, callerOf(request), request.params.id, request.body);
      return reply.code(201).header('cache-control', 'no-store').send(session);
    },
  });

  addConnectionRoute(untyped, app, connections);

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/terminals',
    schema: {
      operationId: 'listTerminals',
      summary: 'List terminals',
      description: 'The terminals that are open in a running machine. A terminal outlives its connections.',
      tags,
      params: MachineParams,
      response: { 200: TerminalList },
    },
    config: {
      access: 'read',
      errors: ['conflict', 'host_unavailable'],
      examples: { response: { terminals: [exampleTerminal] } },
    },
    handler: (request) => listTerminals(app, callerOf(request), request.params.id),
  });

  server.route({
    method: 'DELETE',
    url: '/v1/machines/:id/terminals/:terminal_id',
    schema: {
      operationId: 'deleteTerminal',
      summary: 'End a terminal',
      description: 'Hangs up: its processes get SIGHUP, and SIGKILL after 5 seconds. Its connections end.',
      tags,
      params: TerminalParams,
      response: { 204: NoContent },
    },
    config: { access: 'full', errors: ['conflict', 'host_unavailable'] },
    handler: async (request, reply) => {
      await deleteTerminal(app, callerOf(request), request.params.id, request.params.terminal_id);
      return reply.code(204).send();
    },
  });
}
