// The routes of the activity feed: the whole feed of the account, and the entries of one machine.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { ActivityList, type ActivityList as ActivityListType, ActivityQuery } from '@sandbar/contract/activity.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { listActivity } from './list.ts';
import { checkHasHistory } from './machine.ts';

const tags = ['Activity'];
const PAGING =
  'Newest first, 50 entries a page unless page_size says otherwise; next_cursor is empty at the end. An entry is written ' +
  'when an action has succeeded, and never changed.';

export function addActivityRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/v1/activity',
    schema: {
      operationId: 'listActivity',
      summary: 'List activity',
      description: `What was done in the account. ${PAGING}`,
      tags,
      querystring: ActivityQuery,
      response: { 200: ActivityList },
    },
    config: { access: 'read', examples: { response: exampleActivity() } },
    handler: (request) => listActivity(app, callerOf(request).accountId, request.query),
  });

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/activity',
    schema: {
      operationId: 'listMachineActivity',
      summary: "List a machine's activity",
      description: `What was done with a machine, also when it is destroyed. ${PAGING}`,
      tags,
      params: MachineParams,
      querystring: ActivityQuery,
      response: { 200: ActivityList },
    },
    config: { access: 'read', examples: { response: exampleActivity() } },
    handler: async (request) => {
      const { accountId } = callerOf(request);
      const machineId = request.params.id.toLowerCase();
      await checkHasHistory(app, accountId, machineId);
      return listActivity(app, accountId, { ...request.query, machineId });
    },
  });
}

function exampleActivity(): ActivityListType {
  const machine_id = '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65';
  return {
    activity: [
      {
        machine_id,
        action: 'exec',
        actor: 'user',
        metadata: { exit_code: 0, timeout_sec: 3600 },
        created_at: '2026-01-02T03:04:07.008Z',
      },
      {
        machine_id,
        action: 'machine.created',
        actor: 'user',
        metadata: { stack: 'base', vcpus: 2, memory_mb: 2048, rootfs_gb: 10 },
        created_at: '2026-01-02T03:04:05.906Z',
      },
    ],
    next_cursor: '',
  };
}
