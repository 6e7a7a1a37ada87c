// The routes for hosts on the operator's pages of the dashboard.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { HostSummary, HostSummaryList, RemoveHost } from '@sandbar/contract/admin.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { exampleHost } from './examples.ts';
import { changeHost, describeHosts, type HostChange, removeAndDescribe } from './hosts.ts';
import { OPERATOR } from './operator-access.ts';

const tags = ['Operator'];
const params = Type.Object({ id: Uuid('The host.') });
type Route = {
  name: string;
  change: HostChange;
  operationId: string;
  summary: string;
  description: string;
  deprecated?: true;
  after: Partial<HostSummary>;
};
const CHANGES: readonly Route[] = [
  {
    name: 'cordon',
    change: 'cordon',
    operationId: 'cordonHost',
    summary: 'Cordon a host',
    description: 'The host gets no new machines and volumes. The machines that it has stay.',
    after: { state: 'cordoned', draining: true },
  },
  {
    name: 'uncordon',
    change: 'uncordon',
    operationId: 'uncordonHost',
    summary: 'End the cordon or the draining of a host',
    description: 'The host gets new machines again.',
    after: { state: 'ready', draining: false },
  },
  {
    name: 'drain',
    change: 'drain',
    operationId: 'drainHost',
    summary: 'Drain a host',
    description:
      'The host gets no new machines and volumes. Its detached volumes, and its stopped machines with their volumes and ' +
      'snapshots, move to other hosts in the background, a few at a time, as long as the host is draining. Running machines ' +
      'stay until they are stopped. `remaining` says of each why it is still there.',
    after: {
      state: 'draining',
      draining: true,
      remaining: [
        {
          kind: 'machine',
          id: '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65',
          why: 'It is running: only a stopped machine moves.',
        },
      ],
    },
  },
  {
    name: 'undrain',
    change: 'uncordon',
    operationId: 'undrainHost',
    summary: 'End the draining of a host',
    description: 'The old name of `uncordon`.',
    deprecated: true,
    after: { state: 'ready', draining: false },
  },
];

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

  for (const { name, change, after, ...described } of CHANGES) {
    server.route({
      method: 'POST',
      url: `/admin/v1/hosts/:id/${name}`,
      schema: { ...described, tags, params, response: { 200: HostSummary } },
      config: { ...OPERATOR, examples: { response: { ...exampleHost, ...after } } },
      handler: (request) => changeHost(app, request.params.id, change),
    });
  }

  server.route({
    method: 'POST',
    url: '/admin/v1/hosts/:id/remove',
    schema: {
      operationId: 'removeHost',
      summary: 'Remove a host',
      description:
        'Nothing connects to the host any more. Refused with 409 while the host has machines, volumes or snapshots. With ' +
        '`force` these are given up: they become `error`, and can only be deleted.',
      tags,
      params,
      body: RemoveHost,
      response: { 200: HostSummary },
    },
    config: {
      ...OPERATOR,
      errors: ['conflict'],
      examples: {
        request: { force: false },
        response: { ...exampleHost, state: 'removed', draining: true, machines: 0, volumes: 0, snapshots: 0 },
      },
    },
    handler: (request) => removeAndDescribe(app, request.params.id, request.body),
  });
}
