// The HTTP endpoints of volumes.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { CreateHeaders, NoContent } from '@sandbar/contract/fields.ts';
import {
  Volume,
  VolumeAttach,
  VolumeCreate,
  VolumeList,
  VolumeListQuery,
  VolumeParams,
} from '@sandbar/contract/volume.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { readIdempotencyKey } from '../idempotency/keys.ts';
import { attachVolume, detachVolume } from './attach.ts';
import { createVolume } from './create.ts';
import { deleteVolume } from './destroy.ts';
import { listVolumes } from './list.ts';
import { toVolume } from './record.ts';
import { findVolume } from './store.ts';

const tags = ['Volumes'];

const example: Volume = {
  id: '019b7c2f-8a10-7e55-b1c3-6d2f4e8a9b07',
  account_id: '019b7c1a-0d4e-7c11-8f5a-2b6c9e0d1a34',
  name: 'cache',
  kind: 'data',
  size_gb: 20,
  state: 'available',
  machine_id: null,
  mount_path: null,
  error: null,
  created_at: '2026-01-02T03:14:05.006Z',
};

const attached: Volume = {
  ...example,
  state: 'attached',
  machine_id: '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65',
  mount_path: '/var/cache/build',
};

export function addVolumeRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'POST',
    url: '/v1/volumes',
    schema: {
      operationId: 'createVolume',
      summary: 'Create a volume',
      description:
        'An empty data volume, which becomes an ext4 file system when it is first attached. A retry with the same Idempotency-Key answers 200 with the volume of the first ' +
        'request, as it is now, and Idempotent-Replayed: true; 404 when that volume is deleted.',
      tags,
      body: VolumeCreate,
      headers: CreateHeaders,
      response: { 200: Volume, 201: Volume },
    },
    config: {
      access: 'full',
      errors: ['not_found', 'conflict', 'insufficient_balance', 'quota_exceeded', 'fleet_capacity', 'host_unavailable'],
      examples: { request: { name: 'cache', size_gb: 20 }, response: example },
    },
    handler: async (request, reply) => {
      const key = readIdempotencyKey(request.headers);
      const { row, isReplay } = await createVolume(app, callerOf(request).accountId, request.body, key);
      if (isReplay) reply.header('idempotent-replayed', 'true');
      return reply.code(isReplay ? 200 : 201).send(toVolume(row));
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/volumes',
    schema: {
      operationId: 'listVolumes',
      summary: 'List volumes',
      description:
        'Newest first, all of them unless page_size is given: data volumes, and the root disks that deleted machines left.',
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
    method: 'POST',
    url: '/v1/volumes/:id/attach',
    schema: {
      operationId: 'attachVolume',
      summary: 'Attach a volume',
      description:
        'A running machine has it mounted when this answers, a stopped one from its next start on; it is mounted again at ' +
        'every start. A volume on another host is copied to the host of the machine first; if that takes longer than a ' +
        'minute, the answer is a 409, the copying goes on, and a retry waits on. A machine has eight at most. An attach to where it is already is answered with the volume as it is. After ' +
        'a 503 it is finished as soon as host and machine answer; a stop of the machine ends what its guest does not answer.',
      tags,
      params: VolumeParams,
      body: VolumeAttach,
      response: { 200: Volume },
    },
    config: {
      access: 'full',
      errors: ['conflict', 'insufficient_balance', 'fleet_capacity', 'host_unavailable'],
      examples: {
        request: { machine_id: attached.machine_id, mount_path: attached.mount_path },
        response: attached,
      },
    },
    handler: async (request) =>
      toVolume(await attachVolume(app, callerOf(request).accountId, request.params.id, request.body)),
  });

  server.route({
    method: 'POST',
    url: '/v1/volumes/:id/detach',
    schema: {
      operationId: 'detachVolume',
      summary: 'Detach a volume',
      description:
        'Unmounts it first. One that is in use is a 409 that names what holds it, and nothing changes. After a 503 the ' +
        'detach is finished as soon as the host answers.',
      tags,
      params: VolumeParams,
      response: { 200: Volume },
    },
    config: {
      access: 'full',
      errors: ['conflict', 'insufficient_balance', 'fleet_capacity', 'host_unavailable'],
      examples: { response: example },
    },
    handler: async (request) => toVolume(await detachVolume(app, callerOf(request).accountId, request.params.id)),
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
