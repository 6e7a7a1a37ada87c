// The HTTP endpoints of machines.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { CreateHeaders } from '@sandbar/contract/fields.ts';
import {
  Machine,
  MachineCreate,
  MachineDestroyQuery,
  MachineList,
  MachineListQuery,
  MachineParams,
  MachineUpdate,
} from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { readIdempotencyKey } from '../idempotency/keys.ts';
import { destroyMachine, startMachine, stopMachine } from './actions.ts';
import { createMachine } from './create.ts';
import { exampleMachine } from './examples.ts';
import { listMachines } from './list.ts';
import { toMachine } from './record.ts';
import { findMachine, type MachineView } from './store.ts';
import { updateMachine } from './update.ts';

const tags = ['Machines'];

export function addMachineRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'POST',
    url: '/v1/machines',
    schema: {
      operationId: 'createMachine',
      summary: 'Create a machine',
      description:
        'Boots a microVM and answers when it runs. A create that fails leaves nothing. A retry with the same Idempotency-Key ' +
        'answers 200 with the machine of the first request, as it is now, and Idempotent-Replayed: true. With snapshot_id or ' +
        'root_volume_id (not both) its disk begins as that one, on its host and with its stack: 404 when it is not there, 409 ' +
        'when it cannot be booted from now. With volumes it has these data volumes from its first boot, on their host; all refusals ' +
        'of an attach hold, and volumes of several hosts are a 409. A create that fails gives all its volumes back.',
      tags,
      body: MachineCreate,
      headers: CreateHeaders,
      response: { 200: Machine, 201: Machine },
    },
    config: {
      access: 'full',
      bodyIsOptional: true,
      errors: ['not_found', 'conflict', 'insufficient_balance', 'quota_exceeded', 'fleet_capacity', 'host_unavailable'],
      examples: { request: { name: 'build-1', vcpus: 2, memory_mb: 2048 }, response: exampleMachine() },
    },
    handler: async (request, reply) => {
      const key = readIdempotencyKey(request.headers);
      const { row, isReplay } = await createMachine(app, callerOf(request).accountId, request.body, key);
      if (isReplay) reply.header('idempotent-replayed', 'true');
      return reply.code(isReplay ? 200 : 201).send(toMachine(row));
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/machines',
    schema: {
      operationId: 'listMachines',
      summary: 'List machines',
      description:
        'Newest first, all of them unless page_size is given. Besides the named filters, metadata.KEY=VALUE keeps the ' +
        'machines whose metadata has that value (numbers and booleans compare as text).',
      tags,
      querystring: MachineListQuery,
      response: { 200: MachineList },
    },
    config: { access: 'read', examples: { response: { machines: [exampleMachine()] } } },
    handler: async (request) => {
      const { rows, cursor } = await listMachines(app, callerOf(request).accountId, request.query);
      return { machines: rows.map(toMachine), ...cursor };
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/machines/:id',
    schema: {
      operationId: 'getMachine',
      summary: 'Get a machine',
      description: 'Destroyed machines are answered too.',
      tags,
      params: MachineParams,
      response: { 200: Machine },
    },
    config: { access: 'read', examples: { response: exampleMachine() } },
    handler: async (request) => toMachine(await findMachine(app, callerOf(request).accountId, request.params.id)),
  });

  server.route({
    method: 'PATCH',
    url: '/v1/machines/:id',
    schema: {
      operationId: 'updateMachine',
      summary: 'Change a machine',
      description:
        'Changes its name, its metadata (as a whole), when it expires, and what happens then. What the request leaves out ' +
        'stays. expires_in_sec counts from this request; null takes the expiry away. A destroyed machine is a 404.',
      tags,
      params: MachineParams,
      body: MachineUpdate,
      response: { 200: Machine },
    },
    config: {
      access: 'full',
      bodyIsOptional: true,
      errors: ['conflict'],
      examples: {
        request: { expires_in_sec: 3600, on_expiry: 'stop' },
        response: exampleMachine({ expires_at: '2026-01-02T04:04:05.006Z', on_expiry: 'stop' }),
      },
    },
    handler: async (request) =>
      toMachine(await updateMachine(app, callerOf(request).accountId, request.params.id, request.body)),
  });

  const act = (
    path: '/stop' | '/start',
    words: { operationId: string; summary: string; description: string },
    action: (app: App, accountId: string, id: string) => Promise<MachineView>,
    example: Partial<Machine>,
  ) =>
    server.route({
      method: 'POST',
      url: `/v1/machines/:id${path}`,
      schema: { ...words, tags, params: MachineParams, response: { 200: Machine } },
      config: {
        access: 'full',
        errors: [
          'conflict',
          'host_unavailable',
          ...(path === '/start' ? (['insufficient_balance', 'fleet_capacity'] as const) : []),
        ],
        examples: { response: exampleMachine(example) },
      },
      handler: async (request) => toMachine(await action(app, callerOf(request).accountId, request.params.id)),
    });

  act(
    '/stop',
    {
      operationId: 'stopMachine',
      summary: 'Stop a machine',
      description:
        'Graceful for 10 seconds, then hard. The disk stays; running jobs are lost. A stopped machine is answered as it is.',
    },
    stopMachine,
    { state: 'stopped', stopped_at: '2026-01-02T03:14:05.006Z' },
  );
  act(
    '/start',
    {
      operationId: 'startMachine',
      summary: 'Start a stopped machine',
      description: 'Boots it from its disk with the same address. A running machine is answered as it is.',
    },
    startMachine,
    {},
  );
  server.route({
    method: 'DELETE',
    url: '/v1/machines/:id',
    schema: {
      operationId: 'destroyMachine',
      summary: 'Destroy a machine',
      description:
        'In any state. Its disk and the output of its jobs are gone; with preserve_storage=true the root disk becomes a ' +
        'detached volume, which root_volume_id of the answer names. A machine with snapshots is a 409, unless ' +
        'delete_snapshots=true removes them as well. A destroyed machine is a 404.',
      tags,
      params: MachineParams,
      querystring: MachineDestroyQuery,
      response: { 200: Machine },
    },
    config: {
      access: 'full',
      errors: ['conflict', 'fleet_capacity', 'host_unavailable'],
      examples: { response: exampleMachine({ state: 'destroyed', destroyed_at: '2026-01-02T03:14:05.006Z' }) },
    },
    handler: async (request) => {
      const { accountId } = callerOf(request);
      const { preserve_storage: preserveStorage = false, delete_snapshots: deleteSnapshots = false } = request.query;
      const options = { preserveStorage, deleteSnapshots };
      return toMachine(await destroyMachine(app, accountId, request.params.id, options));
    },
  });
}
