// The routes for hosts on the operator's pages of the dashboard.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { HostSummary, HostSummaryList } from '@sandbar/contract/admin.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { exampleHost } from './examples.ts';
import { describeHosts, setDraining } from './hosts.ts';
import { OPERATOR } from './operator-access.ts';

const tags = ['Operator'];
const params = Type.Object({ id: Uuid('The host.') });
const CHANGES = [
  {
    name: 'drain',
    isDraining: true,
    operationId: 'drainHost',
    summary: 'Drain a host',
    description: 'The host gets no new machines. The machines that it has stay.',
  },
  {
    name: 'undrain',
    isDraining: false,
    operationId: 'undrainHost',
    summary: 'End the draining of a host',
    description: 'The host gets new machines again.',
  },
] as const;

export function addOperatorHostRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/admin/v1/hosts',
    schema: {
      operationId: 'listHosts',
      summary: 'List the hosts',
      description: 'The hosts that machines run on, with their size, what is reserved on them, and their free disk.',
      tags,
      response: { 200: HostSummaryList },
    },
    config: { ...OPERATOR, examples: { response: { hosts: [exampleHost] } } },
    handler: async () => ({ hosts: await describeHosts(app) }),
  });

  for (const { name, isDraining, operationId, summary, description } of CHANGES) {
    server.route({
      method: 'POST',
      url: `/admin/v1/hosts/:id/${name}`,
      schema: { operationId, summary, description, tags, params, response: { 200: HostSummary } },
      config: { ...OPERATOR, examples: { response: { ...exampleHost, draining: isDraining } } },
      handler: (request) => setDraining(app, request.params.id, isDraining),
    });
  }
}
