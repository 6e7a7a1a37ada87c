// HTTP of volumes.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { NoContent } from '@sandbar/contract/fields.ts';
import { Volume, VolumeList, VolumeListQuery, VolumeParams } from '@sandbar/contract/volume.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { deleteVolume } from './destroy.ts';
import { listVolumes } from './list.ts';
import { toVolume } from './record.ts';
import { findVolume } from './store.ts';

const tags = ['Volumes'];

const example: Volume = {
  id: '019b7c2f-8a10-7e55-b1c3-6d2f4e8a9b07',
  account_id: '019b7c1a-0d4e-7c11-8f5a-2b6c9e0d1a34',
  name: '',
  kind: 'root',
  size_gb: 10,
  state: 'available',
  machine_id: null,
  mount_path: null,
  error: null,
  created_at: '2026-01-02T03:14:05.006Z',
};

export function addVolumeRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/v1/volumes',
    schema: {
      operationId: 'listVolumes',
      summary: 'List volumes',
      description:
        'Newest first, all of them unless page_size is given. So far a volume is the root disk that a deleted machine left.',
      tags,
      querystring: VolumeListQuery,
      response: { 200: VolumeList },
    },
    config: { access: 'read', examples: { response: { volumes: [example] } } },
    handler: async (request) => {
      const { rows, cursor } = await listVolumes(app, callerOf(request).accountId, request.query);
      return { volumes: rows.map(toVolume), ...cursor };
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/volumes/:id',
    schema: {
      operationId: 'getVolume',
      summary: 'Get a volume',
      tags,
      params: VolumeParams,
      response: { 200: Volume },
    },
    config: { access: 'read', examples: { response: example } },
    handler: async (request) => toVolume(await findVolume(app, callerOf(request).accountId, request.params.id)),
  });

  server.route({
    method: 'DELETE',
    url: '/v1/volumes/:id',
    schema: {
      operationId: 'deleteVolume',
      summary: 'Delete a volume',
      description:
        'Its data is gone for good. An attached volume is a 409. After a 503 the delete is finished as soon as the ' +
        'host answers; the volume is a 404 from then on.',
      tags,
      params: VolumeParams,
      response: { 204: NoContent },
    },
    config: { access: 'full', errors: ['conflict', 'host_unavailable'] },
    handler: async (request, reply) => {
      await deleteVolume(app, callerOf(request).accountId, request.params.id);
      return reply.code(204).send();
    },
  });
}
