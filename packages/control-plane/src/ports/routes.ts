// The HTTP endpoints about ports of machines. The ports themselves are reached at host names of their own, see
// preview-server.ts.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { NoContent } from '@sandbar/contract/fields.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import { Port, PortList, PortParams, PortToken, PortTokenCreate, PortUpdate } from '@sandbar/contract/port.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { abortOnDisconnect } from '../http/disconnect.ts';
import { addConnectRoute } from './connect-route.ts';
import { createPortToken, listPorts, setPortAccess } from './ports.ts';

const tags = ['Ports'];

const example: Port = {
  port: 8000,
  process: 'python3',
  protocol: 'tcp',
  url: 'http://8000-019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65.localhost:7070/',
  access: 'private',
};

export function addPortRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/ports',
    schema: {
      operationId: 'listPorts',
      summary: 'List open ports',
      description:
        'The TCP ports on which programs in a running machine listen now, whatever their access. Each has an address of ' +
        'its own (url), where the service relays HTTP/1.1, WebSocket and server-sent events to the machine.',
      tags,
      params: MachineParams,
      response: { 200: PortList },
    },
    config: { access: 'read', errors: ['conflict', 'host_unavailable'], examples: { response: { ports: [example] } } },
    handler: (request, reply) => listPorts(app, callerOf(request), request.params.id, abortOnDisconnect(reply)),
  });

  server.route({
    method: 'PUT',
    url: '/v1/machines/:id/ports/:port',
    schema: {
      operationId: 'updatePort',
      summary: 'Make a port public or private',
      description:
        'A private port (the default) needs a credential: an API key or session of the account in X-Sandbar-Key or ' +
        'Authorization, or a token. A key of scope read reaches a port with GET and HEAD only. A public port is open to ' +
        'everybody. No program has to listen on it now, and process is null.',
      tags,
      params: PortParams,
      body: PortUpdate,
      response: { 200: Port },
    },
    config: {
      access: 'full',
      errors: ['conflict'],
      examples: { request: { access: 'public' }, response: { ...example, process: null, access: 'public' } },
    },
    handler: (request) => {
      const { id, port } = request.params;
      return setPortAccess(app, callerOf(request), id, Number(port), request.body.access);
    },
  });

  server.route({
    method: 'DELETE',
    url: '/v1/machines/:id/ports/:port',
    schema: {
      operationId: 'resetPort',
      summary: 'Make a port private again',
      description: 'As a PUT with access private. Relays that are under way go on.',
      tags,
      params: PortParams,
      response: { 204: NoContent },
    },
    config: { access: 'full' },
    handler: async (request, reply) => {
      const { id, port } = request.params;
      await setPortAccess(app, callerOf(request), id, Number(port), 'private');
      return reply.code(204).send();
    },
  });

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/ports/:port/token',
    schema: {
      operationId: 'createPortToken',
      summary: 'Make a token for a port',
      description:
        'A token opens this port of this machine, for every method, until it expires. A token made with an API key also ' +
        'ends with that key. A browser that opens url gets a cookie for the host name of the port in exchange; programs ' +
        'send the token in X-Sandbar-Key.',
      tags,
      params: PortParams,
      body: PortTokenCreate,
      response: { 201: PortToken },
    },
    config: {
      access: 'full',
      bodyIsOptional: true,
      examples: {
        request: { expires_in_sec: 3600 },
        response: {
          token: 'sbp_WyIwMTliN2MxZSJd.c2lnbmF0dXJl',
          url: `${example.url}?sandbar_token=sbp_WyIwMTliN2MxZSJd.c2lnbmF0dXJl`,
          expires_at: '2026-01-02T04:04:05.006Z',
        },
      },
    },
    handler: async (request, reply) => {
      const { id, port } = request.params;
      const token = await createPortToken(app, callerOf(request), id, Number(port), request.body.expires_in_sec);
      return reply.code(201).send(token);
    },
  });

  addConnectRoute(untyped, app);
}
