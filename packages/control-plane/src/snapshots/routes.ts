// The HTTP endpoints of snapshots.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { CreateHeaders, NoContent } from '@sandbar/contract/fields.ts';
import { Machine, MachineParams } from '@sandbar/contract/machine.ts';
import {
  Snapshot,
  SnapshotCreate,
  SnapshotList,
  SnapshotListQuery,
  SnapshotParams,
} from '@sandbar/contract/snapshot.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { readIdempotencyKey } from '../idempotency/keys.ts';
import { exampleMachine } from '../machines/examples.ts';
import { toMachine } from '../machines/record.ts';
import { createSnapshot } from './create.ts';
import { deleteSnapshot } from './destroy.ts';
import { listSnapshots, listSnapshotsOf } from './list.ts';
import { toSnapshot } from './record.ts';
import { restoreSnapshot } from './restore.ts';
import { findSnapshot } from './store.ts';

const tags = ['Snapshots'];

const example: Snapshot = {
  id: '019b7c3a-1c42-7d09-a3e5-0b7f5c2d9e18',
  account_id: '019b7c1a-0d4e-7c11-8f5a-2b6c9e0d1a34',
  machine_id: '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65',
  name: 'before the upgrade',
  kind: 'disk',
  size_gb: 10,
  stored_bytes: 48_234_496,
  state: 'ready',
  error: null,
  created_at: '2026-01-02T03:24:05.006Z',
};

export function addSnapshotRoutes(untyped: FastifyInstance, app: App): void {
  addRoutesOfMachine(untyped, app);
  addRoutesOfSnapshot(untyped, app);
}

function addRoutesOfMachine(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/snapshots',
    schema: {
      operationId: 'createSnapshot',
      summary: 'Take a snapshot of a machine',
      description:
        'Of the root disk of a running or stopped machine; its file systems are consistent, and it is paused for less than ' +
        '100 ms. With memory: true, of a running machine without volumes, its processes are kept as they ran, and it is paused ' +
        'for about a millisecond for each megabyte of its own. An account has a bounded number of snapshots; one more is ' +
        '403 quota_exceeded. A retry with the same Idempotency-Key takes no second snapshot: it answers 200 with the snapshot ' +
        'of the first request, as it is now, and Idempotent-Replayed: true; 404 when that snapshot is deleted.',
      tags,
      params: MachineParams,
      body: SnapshotCreate,
      headers: CreateHeaders,
      response: { 200: Snapshot, 201: Snapshot },
    },
    config: {
      access: 'full',
      bodyIsOptional: true,
      errors: ['conflict', 'insufficient_balance', 'quota_exceeded', 'fleet_capacity', 'host_unavailable'],
      examples: { request: { name: 'before the upgrade' }, response: example },
    },
    handler: async (request, reply) => {
      const { accountId } = callerOf(request);
      const key = readIdempotencyKey(request.headers);
      const { row, isReplay } = await createSnapshot(app, accountId, request.params.id, request.body ?? {}, key);
      if (isReplay) reply.header('idempotent-replayed', 'true');
      return reply.code(isReplay ? 200 : 201).send(toSnapshot(row));
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/snapshots',
    schema: {
      operationId: 'listMachineSnapshots',
      summary: 'List the snapshots of a machine',
      description: 'Newest first, all of them unless page_size is given.',
      tags,
      params: MachineParams,
      querystring: SnapshotListQuery,
      response: { 200: SnapshotList },
    },
    config: { access: 'read', examples: { response: { snapshots: [example] } } },
    handler: async (request) => {
      const { accountId } = callerOf(request);
      const { rows, cursor } = await listSnapshotsOf(app, accountId, request.params.id, request.query);
      return { snapshots: rows.map(toSnapshot), ...cursor };
    },
  });
}

function addRoutesOfSnapshot(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/v1/snapshots',
    schema: {
      operationId: 'listSnapshots',
      summary: 'List snapshots',
      description: 'Newest first, all of them unless page_size is given.',
      tags,
      querystring: SnapshotListQuery,
      response: { 200: SnapshotList },
    },
    config: { access: 'read', examples: { response: { snapshots: [example] } } },
    handler: async (request) => {
      const { rows, cursor } = await listSnapshots(app, callerOf(request).accountId, request.query);
      return { snapshots: rows.map(toSnapshot), ...cursor };
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/snapshots/:id',
    schema: {
      operationId: 'getSnapshot',
      summary: 'Get a snapshot',
      tags,
      params: SnapshotParams,
      response: { 200: Snapshot },
    },
    config: { access: 'read', examples: { response: example } },
    handler: async (request) => toSnapshot(await findSnapshot(app.db, callerOf(request).accountId, request.params.id)),
  });

  server.route({
    method: 'POST',
    url: '/v1/snapshots/:id/restore',
    schema: {
      operationId: 'restoreSnapshot',
      summary: 'Restore a snapshot into its machine',
      description:
        'The root disk goes back to the snapshot, and what was written since is gone. A running machine reboots into it, and ' +
        'its running jobs are lost; a stopped one stays stopped. Volumes stay as they are. One that does not boot any more is ' +
        'stopped. After a 503 the restore may be finished as soon as the host answers.',
      tags,
      params: SnapshotParams,
      response: { 200: Machine },
    },
    config: {
      access: 'full',
      errors: ['conflict', 'insufficient_balance', 'fleet_capacity', 'host_unavailable'],
      examples: { response: exampleMachine() },
    },
    handler: async (request) => toMachine(await restoreSnapshot(app, callerOf(request).accountId, request.params.id)),
  });

  server.route({
    method: 'DELETE',
    url: '/v1/snapshots/:id',
    schema: {
      operationId: 'deleteSnapshot',
      summary: 'Delete a snapshot',
      description:
        'Machines made from it live on. After a 503 the delete is finished as soon as the host answers; the snapshot is a ' +
        '404 from then on.',
      tags,
      params: SnapshotParams,
      response: { 204: NoContent },
    },
    config: { access: 'full', errors: ['conflict', 'host_unavailable'] },
    handler: async (request, reply) => {
      await deleteSnapshot(app, callerOf(request).accountId, request.params.id);
      return reply.code(204).send();
    },
  });
}
