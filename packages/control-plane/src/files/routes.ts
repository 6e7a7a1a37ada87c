// The HTTP endpoints of files.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { NoContent } from '@sandbar/contract/fields.ts';
import {
  DirectoryCreate,
  FileEntry,
  FileList,
  FileListQuery,
  FileMove,
  FileQuery,
  FileRemoveQuery,
} from '@sandbar/contract/file.ts';
import { MachineParams } from '@sandbar/contract/machine.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { Places } from '../http/places.ts';
import type { RawBodies } from '../http/raw-bodies.ts';
import { addArchiveRoute, addUnpackRoute } from './archive-routes.ts';
import { createDirectory, getEntry, moveFile, removeFile } from './change.ts';
import { addReadRoute, addWriteRoute } from './content-routes.ts';
import { exampleEntry } from './examples.ts';
import { listFiles } from './list.ts';
import { readQueryPath } from './query-path.ts';
import { targetOf } from './request.ts';
import { addWatchRoute } from './watch-route.ts';

const tags = ['Files'];

/** Adds the routes in a scope of their own, so that the hook for `path` runs for no other routes. */
export async function addFileRoutes(server: FastifyInstance, app: App, rawBodies: RawBodies): Promise<void> {
  const places = new Places(
    app.config.bounds.streamsPerAccount,
    'transfers of files',
    app.metrics.streams.labels('file'),
  );
  await server.register(async (files) => {
    files.addHook('preValidation', readQueryPath);
    addEntryRoutes(files, app);
    addReadRoute(files, app, places);
    addArchiveRoute(files, app, places);
    addWatchRoute(files, app);
    await rawBodies.addRoutes(files, (raw) => {
      addWriteRoute(raw, app, places);
      addUnpackRoute(raw, app, places);
    });
  });
}

function addEntryRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/files',
    schema: {
      operationId: 'listFiles',
      summary: 'List a directory',
      description:
        'The entries of a directory, sorted by the bytes of their paths, up to 1,000 in a page. Symlinks below the ' +
        'directory are listed and not followed. A machine that is just starting is waited for, up to 30 seconds.',
      tags,
      params: MachineParams,
      querystring: FileListQuery,
      response: { 200: FileList },
    },
    config: {
      access: 'read',
      errors: ['conflict', 'host_unavailable'],
      examples: { response: { entries: [exampleEntry()], next_cursor: '' } },
    },
    handler: (request) => listFiles(app, targetOf(request), request.query),
  });

  server.route({
    method: 'GET',
    url: '/v1/machines/:id/files/entry',
    schema: {
      operationId: 'getFile',
      summary: 'Describe a file',
      description: 'The entry of one path: a file, a directory, or a symlink itself.',
      tags,
      params: MachineParams,
      querystring: FileQuery,
      response: { 200: FileEntry },
    },
    config: { access: 'read', errors: ['conflict', 'host_unavailable'], examples: { response: exampleEntry() } },
    handler: (request) => getEntry(app, targetOf(request)),
  });

  server.route({
    method: 'DELETE',
    url: '/v1/machines/:id/files',
    schema: {
      operationId: 'deleteFile',
      summary: 'Delete a file or directory',
      description: 'A directory that is not empty is a 409, unless recursive is true.',
      tags,
      params: MachineParams,
      querystring: FileRemoveQuery,
      response: { 204: NoContent },
    },
    config: { access: 'full', rateLimit: 'files', errors: ['conflict', 'disk_full', 'host_unavailable'] },
    handler: async (request, reply) => {
      await removeFile(app, targetOf(request), request.query.recursive ?? false);
      return reply.code(204).send();
    },
  });

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/files/directory',
    schema: {
      operationId: 'createDirectory',
      summary: 'Make a directory',
      description: 'Also makes the directories above it that are missing. One that exists already is a 200.',
      tags,
      params: MachineParams,
      body: DirectoryCreate,
      response: { 200: FileEntry, 201: FileEntry },
    },
    config: {
      access: 'full',
      rateLimit: 'files',
      errors: ['conflict', 'disk_full', 'host_unavailable'],
      examples: {
        request: { path: '/root/work' },
        response: exampleEntry({ path: '/root/work', name: 'work', type: 'directory', size: 4096, mode: '0755' }),
      },
    },
    handler: async (request, reply) => {
      const machine = { caller: callerOf(request), machineId: request.params.id };
      const { entry, created } = await createDirectory(app, machine, request.body);
      return reply.code(created ? 201 : 200).send(entry);
    },
  });

  server.route({
    method: 'POST',
    url: '/v1/machines/:id/files/move',
    schema: {
      operationId: 'moveFile',
      summary: 'Move a file or directory',
      description: 'Renames within a file system. What exists at the new path is a 409, unless overwrite is true.',
      tags,
      params: MachineParams,
      body: FileMove,
      response: { 200: FileEntry },
    },
    config: {
      access: 'full',
      rateLimit: 'files',
      errors: ['conflict', 'disk_full', 'host_unavailable'],
      examples: {
        request: { from: '/root/hello.txt', to: '/root/bye.txt' },
        response: exampleEntry({ path: '/root/bye.txt', name: 'bye.txt' }),
      },
    },
    handler: (request) => moveFile(app, { caller: callerOf(request), machineId: request.params.id }, request.body),
  });
}
